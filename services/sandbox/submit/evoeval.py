"""EvoEvalDataset: HumanEval's tasks in the original's older layout of records."""

from typing import Annotated

from pydantic import BaseModel

from services.sandbox.submit import humaneval
from services.sandbox.submit.extraction import first_block, in_language
from services.sandbox.submit.fields import FromJson, Text
from services.sandbox.submit.plans import ProgramRun
from services.sandbox.submit.records import read_record
from services.sandbox.submit.schemas import SubmitRequest


class Labels(BaseModel):
    entry_point: Text


class Record(BaseModel):
    content: Text
    test: Text
    labels: Annotated[Labels, FromJson]


def plan(request: SubmitRequest) -> ProgramRun:
    """As HumanEval, without its imports; a completion is found in its prompt like a whole answer.

    A record in HumanEval's own layout is judged as one of HumanEval.

    Source: SandboxFusion 469de08, ``sandbox/datasets/humanevoeval.py``,
    ``sandbox/datasets/humaneval_deprecated.py``.

    Raises:
        SubmitError: 400.
    """
    if "entry_point" in (request.config.provided_data or ()):
        return humaneval.plan(request)
    record = read_record(request, Record)
    if request.config.extra.get("is_freeform"):
        extracted = code = in_language(request.completion, "python")
    else:
        extracted = request.completion
        code = first_block(f"{record.content}\n{extracted}", "python")
    program = f"{code}\n{record.test}\ncheck({record.labels.entry_point})"
    return ProgramRun(humaneval.program_request(program, request.config), extracted_code=extracted)
