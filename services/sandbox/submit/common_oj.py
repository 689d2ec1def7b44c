"""CommonOJDataset: a program against cases of standard input and output."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, FailFast
from pydantic_core import PydanticCustomError

from services.sandbox import languages
from services.sandbox.schemas import RunCodeRequest
from services.sandbox.submit.errors import refused
from services.sandbox.submit.extraction import in_language
from services.sandbox.submit.fields import FromJson
from services.sandbox.submit.plans import StdioRuns
from services.sandbox.submit.records import read_record
from services.sandbox.submit.schemas import StdioCase, SubmitConfig, SubmitRequest

COMPILE_TIMEOUT = 10.0
RUN_TIMEOUT, RUN_TIMEOUT_COMPILED = 20.0, 10.0


def _has_streams(case: StdioCase) -> StdioCase:
    if "stdin" not in case.input or "stdout" not in case.output:
        raise PydanticCustomError("streams", "input.stdin and output.stdout are required")
    return case


Case = Annotated[StdioCase, AfterValidator(_has_streams)]


class Record(BaseModel):
    test: Annotated[list[Case], FailFast(), FromJson]


def plan(request: SubmitRequest) -> StdioRuns:
    """The code of the completion, as it stands, for every case of the record.

    Source: SandboxFusion 469de08, ``sandbox/datasets/common_oj.py``, ``sandbox/utils/testing.py``.

    Raises:
        SubmitError: 400.
    """
    config = request.config
    if not config.language:
        raise refused("config.language field must exist for CommonOJDataset, got None")
    if config.custom_extract_logic:
        raise refused(
            "config.custom_extract_logic is not run by this server: it would be foreign code in "
            "the server's own process. Extract before you submit"
        )
    record = read_record(request, Record)
    return StdioRuns(
        program=RunCodeRequest(
            code=in_language(request.completion, config.language),
            language=config.language,
            compile_timeout=config.compile_timeout or COMPILE_TIMEOUT,
            run_timeout=_run_timeout(config),
        ),
        cases=record.test,
        run_all=bool(config.extra.get("run_all_cases")),
        shorten=not config.extra.get("return_full_case"),
    )


def _run_timeout(config: SubmitConfig) -> float:
    compiled = config.language in languages.COMPILED
    return config.run_timeout or (RUN_TIMEOUT_COMPILED if compiled else RUN_TIMEOUT)
