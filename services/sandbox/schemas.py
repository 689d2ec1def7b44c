"""Wire format of SandboxFusion's API: ``/run_code``, ``/submit``, ``/get_prompts``.

Requests are validated in pydantic's lax mode and unknown fields are ignored, as in the original.
"""

import json
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, RootModel
from pydantic_core import PydanticCustomError

from shared.harness.wire import Text as Text

# Field types.


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)
    except (ValueError, RecursionError) as error:
        raise PydanticCustomError("json_invalid", "Input should be JSON") from error


Key = int | Text

FromJson = BeforeValidator(_from_json)
"""Marks a column of a record that may be JSON or a string that contains JSON."""

Record = dict[str, Any]
"""A data set's record: foreign JSON, which each dataset class validates with its own model."""

Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]  # fmt: skip

COMPILED: frozenset[Language] = frozenset({"cpp"})
"""The compiled languages among those that this server runs."""


# /run_code


class RunStatus(StrEnum):
    SUCCESS = "Success"
    FAILED = "Failed"
    SANDBOX_ERROR = "SandboxError"


class CommandStatus(StrEnum):
    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class RunCodeRequest(BaseModel):
    code: str
    language: Language
    compile_timeout: float = 10
    run_timeout: float = 10
    memory_limit_MB: int = -1
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class CommandResult(BaseModel):
    """Result of one command; a negative ``return_code`` is the signal that killed it."""

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is CommandStatus.FINISHED and self.return_code == 0


class RunCodeResponse(BaseModel):
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
    compile_timeout: float | None = None
    run_timeout: float | None = None
    custom_extract_logic: str | None = None
    provided_data: list[Record] | Record | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class SubmitRequest(BaseModel):
    dataset: Text
    id: Key
    completion: Text
    config: SubmitConfig


class StdioCase(BaseModel):
    """Input and expected output: ``stdin`` and ``stdout``; other keys are only echoed."""

    input: dict[Text, Text]
    output: dict[Text, Text]


class EvalTest(BaseModel):
    passed: bool
    exec_info: RunCodeResponse
    test_info: StdioCase | None = None


class EvalResult(BaseModel):
    """``test_code`` and ``extracted_type`` are always null, as in the original."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: None = None
    tests: list[EvalTest]
    extracted_type: None = None
    extra: dict[str, Any] | None = None


# /get_prompts and /get_prompt_by_id


class GetPromptsRequest(BaseModel):
    """``offset`` and ``limit`` apply to the server's tables, in the order of the ids."""

    dataset: Text
    config: SubmitConfig
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000_000, ge=0)


class GetPromptByIdRequest(BaseModel):
    dataset: Text
    config: SubmitConfig
    id: Key


class Prompt(BaseModel):
    """``labels`` are the record's own, or HumanEval's record without its prompt."""

    id: Key
    prompt: Text
    labels: dict[str, Any]


class Prompts(RootModel[list[Prompt]]):
    """A JSON list."""
