"""Wire format of SandboxFusion's API, ``/run_code`` and ``/submit``, for both sides.

Requests are validated in pydantic's lax mode and unknown fields are ignored, as in the original.
"""

import base64
import json
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from shared.foreign_json import JsonError, decode_json
from shared.harness.wire import MAX_SECONDS
from shared.harness.wire import Text as Text
from shared.programs import Language as Language

_MAX_MEMORY_MB = 2**53

# Field types.


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value, strict=False)
    except JsonError as error:
        raise PydanticCustomError("json_invalid", "Input should be JSON") from error


Timeout = Annotated[float, Field(allow_inf_nan=False, le=MAX_SECONDS)]
"""Wall-clock seconds. As in the original, a program with no time at all times out."""


Key = int | Text

FromJson = BeforeValidator(_from_json)
"""Marks a column of a record that may be JSON or a string that contains JSON."""

Record = dict[str, Any]
"""A data set's record: foreign JSON, which each dataset class validates with its own model."""

# A name of the same data set that is used, too.
_OTHER_NAMES = {"humaneval": "humaneval_python"}

DatasetName = Annotated[Text, AfterValidator(lambda name: _OTHER_NAMES.get(name, name))]
"""The registered name of a data set."""


class Call(BaseModel):
    """A request; fields without a value are not sent."""

    @property
    def body(self) -> bytes:
        return json.dumps(self.model_dump(exclude_none=True)).encode()


# /run_code


class RunStatus(StrEnum):
    SUCCESS = "Success"
    FAILED = "Failed"
    SANDBOX_ERROR = "SandboxError"


class CommandStatus(StrEnum):
    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class RunCodeRequest(Call):
    code: str
    language: Language
    compile_timeout: Timeout = 10
    run_timeout: Timeout = 10
    memory_limit_MB: Annotated[int, Field(ge=-1, le=_MAX_MEMORY_MB)] = -1
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class CommandResult(BaseModel):
    """Result of one command; seconds. A negative ``return_code`` is the signal that killed it."""

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is CommandStatus.FINISHED and self.return_code == 0


class RunCodeResponse(BaseModel):
    """Response of ``/run_code``; ``files`` are base64."""

    status: RunStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def stdout(self) -> str:
        """Standard output of the program; empty if it did not run."""
        return (self.run_result.stdout or "") if self.run_result else ""

    def file(self, name: str) -> bytes:
        """Return a fetched file; empty if it is missing."""
        try:
            return base64.b64decode(self.files.get(name, ""))
        except ValueError:
            return b""


def overall_status(results: list[CommandResult]) -> tuple[RunStatus, str]:
    """Return status and message of a response: any ``Error`` makes it a SandboxError."""
    for result in results:
        if result.status is CommandStatus.ERROR:
            return RunStatus.SANDBOX_ERROR, result.stderr or ""
    if all(result.succeeded for result in results):
        return RunStatus.SUCCESS, ""
    return RunStatus.FAILED, ""


# /submit


class SubmitConfig(BaseModel):
    dataset_type: Text | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: Timeout | None = None
    run_timeout: Timeout | None = None
    custom_extract_logic: str | None = None
    provided_data: list[Record] | Record | None = None
    extra: Record = Field(default_factory=dict)


class SubmitRequest(Call):
    dataset: DatasetName
    id: Key
    completion: Text
    config: SubmitConfig


class StdioCase(BaseModel):
    """Input and expected output: ``stdin`` and ``stdout``; other keys are only echoed."""

    input: dict[Text, Text]
    output: dict[Text, Text]


class EvalTest(BaseModel):
    """Result of one case, with the test as the server has it."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: Record | None = None


class EvalResult(BaseModel):
    """``test_code`` and ``extracted_type`` are always null, as in the original."""

    id: int | str = 0
    accepted: bool
    extracted_code: str = ""
    full_code: str | None = None
    test_code: None = None
    tests: list[EvalTest]
    extracted_type: None = None
    extra: dict[str, Any] | None = None
