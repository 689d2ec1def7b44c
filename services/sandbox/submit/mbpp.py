"""MBPPDataset: a function and a list of assertions about it."""

from typing import Annotated

from pydantic import BaseModel

from services.sandbox.schemas import RunCodeRequest
from services.sandbox.submit.errors import refused
from services.sandbox.submit.extraction import first_block
from services.sandbox.submit.fields import FromJson, Text
from services.sandbox.submit.plans import ProgramRun
from services.sandbox.submit.records import read_record
from services.sandbox.submit.schemas import SubmitRequest

RUN_TIMEOUT = 20.0
END = "[DONE]"
STOPS = ("\nassert", '\n"""')
MAIN_GUARD = "if __name__ =="


class Labels(BaseModel):
    test_setup_code: Text


class Record(BaseModel):
    labels: Annotated[Labels, FromJson]
    test_list: Annotated[list[Text], FromJson]


def plan(request: SubmitRequest) -> ProgramRun:
    """Set-up code, the completion's code and the assertions; with ``is_fewshot`` only the last one.

    Source: SandboxFusion 469de08, ``sandbox/datasets/mbpp.py``.

    Raises:
        SubmitError: 400.
    """
    record = read_record(request, Record)
    tests = record.test_list
    if request.config.is_fewshot:
        if not tests:
            raise refused("the record: test_list: is_fewshot needs at least one test")
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
    """The first block before ``[DONE]``, up to assertions or a text of the completion's own."""
    code = first_block(completion.partition(END)[0], "python")
    for stop in STOPS:
        code = code.partition(stop)[0]
    return code
