"""CommonOJDataset: a program and cases of standard input and output."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel
from pydantic_core import PydanticCustomError

from services.sandbox.datasets.base import (
    StdioRuns,
    bad_request,
    read_record,
)
from services.sandbox.datasets.extraction import in_language
from services.sandbox.schemas import (
    COMPILED,
    FromJson,
    RunCodeRequest,
    StdioCase,
    SubmitConfig,
    SubmitRequest,
)

COMPILE_TIMEOUT = 10.0
RUN_TIMEOUT, RUN_TIMEOUT_COMPILED = 20.0, 10.0


def _has_streams(case: StdioCase) -> StdioCase:
    if "stdin" not in case.input or "stdout" not in case.output:
        raise PydanticCustomError("streams", "input.stdin and output.stdout are required")
    return case


_Case = Annotated[StdioCase, AfterValidator(_has_streams)]


class _Tests(BaseModel):
    test: Annotated[list[_Case], FromJson]


def plan(request: SubmitRequest) -> StdioRuns:
    """Plan one run of the completion's unchanged code per case of the record.

    Source: SandboxFusion 469de08, ``sandbox/datasets/common_oj.py``, ``sandbox/utils/testing.py``.

    Raises:
        DatasetError: 400.
    """
    config = request.config
    if not config.language:
        raise bad_request("config.language field must exist for CommonOJDataset, got None")
    if config.custom_extract_logic:
        raise bad_request(
            "config.custom_extract_logic is not supported: it would run foreign code in the "
            "server's own process; extract the code before you submit"
        )
    record = read_record(request, _Tests)
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
    compiled = config.language in COMPILED
    return config.run_timeout or (RUN_TIMEOUT_COMPILED if compiled else RUN_TIMEOUT)
