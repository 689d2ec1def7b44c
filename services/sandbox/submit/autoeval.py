"""AutoEvalDataset: an answer joined to a test program."""

import secrets
import string
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from services.sandbox.schemas import RunCodeRequest
from services.sandbox.submit.extraction import in_language, without_entry_point
from services.sandbox.submit.fields import FromJson, Text
from services.sandbox.submit.plans import ProgramRun
from services.sandbox.submit.records import read_record
from services.sandbox.submit.schemas import SubmitRequest

COMPILE_TIMEOUT, RUN_TIMEOUT = 40.0, 20.0
INSERT = "#<INSERT>"
MAIN_GUARD = "if __name__ =="
FLAG_LENGTH = 20


Served = Literal["python", "cpp", "bash"]


class Labels(BaseModel):
    """The language the answer is written in, and the one that the whole program is run as."""

    programming_language: Served
    execution_language: Served | None = None


def _files(value: object) -> object:
    return value if isinstance(value, dict | str) else {}


class TestProgram(BaseModel):
    code: Text
    asset: Annotated[dict[Text, Text | None], FromJson, BeforeValidator(_files)] = Field(
        default_factory=dict
    )


class Record(BaseModel):
    labels: Annotated[Labels, FromJson]
    test: Annotated[TestProgram, FromJson]


def plan(request: SubmitRequest) -> ProgramRun:
    """The completion's code in the place that the test program marks, else before it.

    Source: SandboxFusion 469de08, ``sandbox/datasets/autoeval.py``.

    Raises:
        SubmitError: 400.
    """
    record = read_record(request, Record)
    config = request.config
    written_in = record.labels.programming_language
    run_as = record.labels.execution_language or written_in
    code = without_entry_point(in_language(request.completion, written_in), written_in)
    program = joined(code, record.test.code, as_literal=bool(config.extra.get("repr_code")))
    flag = _random_flag() if config.extra.get("append_flag") and run_as == "python" else ""
    if flag:
        program += f'\n\nprint("{flag}")'
    return ProgramRun(
        program=RunCodeRequest(
            code=program,
            language=run_as,
            compile_timeout=config.compile_timeout or COMPILE_TIMEOUT,
            run_timeout=config.run_timeout or RUN_TIMEOUT,
            files=record.test.asset,
        ),
        extracted_code=code,
        flag=flag,
        extra={},
    )


def joined(code: str, test: str, *, as_literal: bool) -> str:
    """One program of both; ``as_literal`` makes the code a Python string in it.

    A second mark and what follows it are dropped, as the original does.
    """
    before, mark, after = test.partition(INSERT)
    if not mark:
        code = code.partition(MAIN_GUARD)[0]
    if as_literal:
        code = repr(code)
    return before + code + after.partition(INSERT)[0] if mark else f"{code}\n{test}"


def _random_flag() -> str:
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(FLAG_LENGTH))
