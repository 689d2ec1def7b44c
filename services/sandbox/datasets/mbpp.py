"""MBPPDataset: a function and a list of assertions about it."""

from typing import Annotated

from pydantic import BaseModel

from services.sandbox.datasets.base import (
    ProgramRun,
    bad_request,
    read_record,
)
from services.sandbox.datasets.extraction import first_block
from services.sandbox.schemas import (
    FromJson,
    RunCodeRequest,
    SubmitRequest,
    Text,
)

RUN_TIMEOUT = 20.0
END = "[DONE]"
STOPS = ("\nassert", '\n"""')
MAIN_GUARD = "if __name__ =="


TestList = Annotated[list[Text], FromJson]


class _Labels(BaseModel):
    test_setup_code: Text


class _Tests(BaseModel):
    labels: Annotated[_Labels, FromJson]
    test_list: TestList


def plan(request: SubmitRequest) -> ProgramRun:
    """Plan a program: set-up code, extracted code, assertions (with ``is_fewshot`` the last one).

    Source: SandboxFusion 469de08, ``sandbox/datasets/mbpp.py``.

    Raises:
        DatasetError: 400.
    """
    record = read_record(request, _Tests)
    tests = record.test_list
    if request.config.is_fewshot:
        if not tests:
            raise bad_request("the record: test_list: is_fewshot needs at least one test")
        tests = tests[-1:]
    code = f"{record.labels.test_setup_code}\n{answer(request.completion)}"
    code = code.partition(MAIN_GUARD)[0]
    return ProgramRun(
        program=RunCodeRequest(
            code=code + "".join(f"\n{test}\n" for test in tests),
            language="python",
            run_timeout=request.config.run_timeout or RUN_TIMEOUT,
        ),
        extracted_code=code,
    )


def answer(completion: str) -> str:
    """Extract the first block before ``[DONE]``, up to its own assertions or docstring."""
    code = first_block(completion.partition(END)[0], "python")
    for stop in STOPS:
        code = code.partition(stop)[0]
    return code
