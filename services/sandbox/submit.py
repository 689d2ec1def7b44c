"""Submits: the programs to run for a completion, by dataset name or class, and their judging.

Source: SandboxFusion 469de08, ``sandbox/datasets``.
"""

import re
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from services.sandbox.submit_extraction import first_block, in_language
from shared.checkers import lines
from shared.foreign_json import first_errors
from shared.harness.sandbox_api import (
    CommandResult,
    CommandStatus,
    EvalResult,
    EvalTest,
    FromJson,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    StdioCase,
    SubmitRequest,
    Text,
)
from shared.text import shorten_end

DETAIL_LIMIT = 500

Model = TypeVar("Model", bound=BaseModel)


class DatasetError(Exception):
    """A request failed; the message is the ``detail`` of the response.

    Attributes:
        status: 400 if the request is at fault, 500 if the sandbox is.
    """

    def __init__(self, detail: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(shorten_end(detail, DETAIL_LIMIT))
        self.status = status


@dataclass(frozen=True)
class Plan:
    """Program to run for a completion.

    Attributes:
        extracted_code: The completion's part of the program.
        cases: Cases, each a run with the case's standard input. None for a program that contains
            its tests, which is accepted if it exits with 0.
    """

    program: RunCodeRequest
    extracted_code: str
    cases: list[StdioCase] | None = None


def make_plan(request: SubmitRequest) -> Plan:
    """Plan a submit by its dataset or, if that is unknown, by the class ``config.dataset_type``.

    Raises:
        DatasetError: 400.
    """
    if request.dataset in DATASETS:
        return DATASETS[request.dataset](request)
    kind = request.config.dataset_type
    if kind is None:
        raise DatasetError(f"no eval class found for dataset {request.dataset}")
    if kind not in CLASSES:
        raise DatasetError(f"eval class {kind} not found")
    return CLASSES[kind](request)


def read_record(request: SubmitRequest, model: type[Model]) -> Model:
    """Validate the record of a submit.

    Raises:
        DatasetError: 400, the record is missing, a list, or does not match ``model``.
    """
    data = request.config.provided_data
    if not data:
        raise DatasetError(
            "this server stores no data sets; send the record in config.provided_data"
        )
    if isinstance(data, list):
        raise DatasetError("request.config.provided_data should be a dict with str -> str | int")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = first_errors(error)[0]
        place = ".".join(map(str, first["loc"]))
        raise DatasetError(f"the record: {place}: {first['msg']}") from error


# CommonOJDataset: a program and cases of standard input and output.

COMPILE_TIMEOUT = 10.0
RUN_TIMEOUT, RUN_TIMEOUT_COMPILED = 20.0, 10.0
COMPILED = ("cpp", "go", "java")  # according to the original


def _has_streams(case: StdioCase) -> StdioCase:
    if "stdin" not in case.input or "stdout" not in case.output:
        raise PydanticCustomError("streams", "input.stdin and output.stdout are required")
    return case


_StdioCase = Annotated[StdioCase, AfterValidator(_has_streams)]


class _StdioTests(BaseModel):
    test: Annotated[list[_StdioCase], FromJson]


def plan_stdio(request: SubmitRequest) -> Plan:
    """Plan one run of the completion's unchanged code per case of the record."""
    config = request.config
    if not config.language:
        raise DatasetError("config.language field must exist for CommonOJDataset, got None")
    if config.custom_extract_logic:
        raise DatasetError(
            "config.custom_extract_logic is not supported: it would run foreign code in the "
            "server's own process; extract the code before you submit"
        )
    record = read_record(request, _StdioTests)
    longest = RUN_TIMEOUT_COMPILED if config.language in COMPILED else RUN_TIMEOUT
    code = in_language(request.completion, config.language)
    return Plan(
        program=RunCodeRequest(
            code=code,
            language=config.language,
            compile_timeout=config.compile_timeout or COMPILE_TIMEOUT,
            run_timeout=config.run_timeout or longest,
        ),
        extracted_code=code,
        cases=record.test,
    )


# HumanEvalDataset: a function (its body or all of it), and a ``check`` that calls it.

# The original's imports line by line, so that line numbers in tracebacks are the original's. numpy,
# which loads slowly, is for programs that name it.
HEADER = """\
import math
import re
import sys
import copy
import datetime
import itertools
import collections
import heapq
import statistics
import functools
import hashlib
import numpy
import numpy as np
import string
from typing import *
from collections import *
"""

_NUMPY = "import numpy\nimport numpy as np\n"
_NAMES_NUMPY = re.compile(r"\b(np|numpy)\b")
_BODY_END = re.compile(r"\n(?=\S)")


class _CheckTests(BaseModel):
    """Columns with the tests; ``prompt`` is required unless the answer is freeform."""

    test: Text
    entry_point: Text
    prompt: Text | None = None


def plan_humaneval(request: SubmitRequest) -> Plan:
    """Plan a program: prompt and completion or, with ``extra.is_freeform``, the extracted code.

    The original does not call ``check`` for unregistered names, and so accepts every program.
    """
    config = request.config
    if "tests" in (config.provided_data or ()):
        raise DatasetError("the record: records with 'tests' (MultiPL-E) are not supported")
    record = read_record(request, _CheckTests)
    if config.extra.get("is_freeform"):
        code = head = _freeform_answer(request)
    elif record.prompt is None:
        raise DatasetError("the record: prompt: Field required")
    else:
        code = function_body(request.completion)
        head = f"{record.prompt}\n{code}"
    code_and_tests = f"{head}\n{record.test}\ncheck({record.entry_point})"
    numpy = _NAMES_NUMPY.search(code_and_tests)
    header = HEADER if numpy else HEADER.replace(_NUMPY, "\n\n")
    program = RunCodeRequest(
        code=f"{header}{code_and_tests}",
        language="python",
        compile_timeout=config.compile_timeout or RUN_TIMEOUT,
        run_timeout=config.run_timeout or RUN_TIMEOUT,
    )
    return Plan(program, extracted_code=code)


def function_body(completion: str) -> str:
    """Return the completion up to its first unindented line, not counting line 1."""
    return _BODY_END.split(completion, maxsplit=1)[0]


def _freeform_answer(request: SubmitRequest) -> str:
    if request.dataset == "humaneval_python":
        return in_language(request.completion, "python")
    return function_body(first_block(request.completion, "python"))


# MBPPDataset: a function and a list of assertions about it.

END = "[DONE]"
STOPS = ("\nassert", '\n"""')
MAIN_GUARD = "if __name__ =="


class _Labels(BaseModel):
    test_setup_code: Text


class _AssertionTests(BaseModel):
    labels: Annotated[_Labels, FromJson]
    test_list: Annotated[list[Text], FromJson]


def plan_mbpp(request: SubmitRequest) -> Plan:
    """Plan a program: set-up code, extracted code, assertions (only the last if few-shot)."""
    record = read_record(request, _AssertionTests)
    tests = record.test_list
    if request.config.is_fewshot:
        if not tests:
            raise DatasetError("the record: test_list: is_fewshot needs at least one test")
        tests = tests[-1:]
    code = f"{record.labels.test_setup_code}\n{mbpp_answer(request.completion)}"
    code = code.partition(MAIN_GUARD)[0]
    return Plan(
        program=RunCodeRequest(
            code=code + "".join(f"\n{test}\n" for test in tests),
            language="python",
            run_timeout=request.config.run_timeout or RUN_TIMEOUT,
        ),
        extracted_code=code,
    )


def mbpp_answer(completion: str) -> str:
    """Extract the first block before ``[DONE]``, up to its own assertions or docstring."""
    code = first_block(completion.partition(END)[0], "python")
    for stop in STOPS:
        code = code.partition(stop)[0]
    return code


Planner = Callable[[SubmitRequest], Plan]
"""A dataset class; raises DatasetError (400)."""

DATASETS: dict[str, Planner] = {
    "code_contests": plan_stdio,
    "humaneval_python": plan_humaneval,
    "shadow_humaneval_python": plan_humaneval,
    "mbpp": plan_mbpp,
}
CLASSES: dict[str, Planner] = {
    "CommonOJDataset": plan_stdio,
    "HumanEvalDataset": plan_humaneval,
    "MBPPDataset": plan_mbpp,
}

# Judging: run the plan, compare the output, limit the size of the response.

# Characters that all runs of one submit may print together: the response contains all of them.
OUTPUT_LIMIT = 64 * 1024 * 1024
LONGEST_SHOWN = 1000  # characters per text in the test_info of a passed case
PLACEHOLDER = "..."


Run = Callable[[RunCodeRequest], Awaitable[RunCodeResponse]]


async def judge(request: SubmitRequest, plan: Plan, run: Run) -> EvalResult:
    """Run the plan and compare the output: cases in order, up to the first failed one by default.

    Raises:
        DatasetError: 500, the sandbox could not run a program.
    """
    tests: list[EvalTest] = []
    options, left = request.config.extra, OUTPUT_LIMIT
    for case in [None] if plan.cases is None else plan.cases:
        changes = {"stdin": case.input["stdin"]} if case else {}
        answer = await run(plan.program.model_copy(update=changes))
        if answer.status is RunStatus.SANDBOX_ERROR:
            failed = "Failed to check stdio test case" if case else "failed to request sandbox"
            raise DatasetError(f"{failed}: {answer.message}", HTTPStatus.INTERNAL_SERVER_ERROR)
        left -= _characters(answer)
        answer = answer if left >= 0 else _over_limit()
        tests.append(_test(case, answer, whole=bool(options.get("return_full_case"))))
        if left < 0 or not (tests[-1].passed or options.get("run_all_cases")):
            break
    return EvalResult(
        id=request.id,
        accepted=all(test.passed for test in tests),
        extracted_code=plan.extracted_code,
        full_code=plan.program.code if plan.cases is None else None,
        tests=tests,
    )


def _test(case: StdioCase | None, answer: RunCodeResponse, *, whole: bool) -> EvalTest:
    """Return the result of a run; the long texts of a passed case are cut unless ``whole``."""
    passed = answer.status is RunStatus.SUCCESS
    if case is not None:
        passed = passed and lines(answer.stdout, case.output["stdout"])
        case = _shortened(case) if passed and not whole else case
    shown = case.model_dump() if case else None
    return EvalTest(passed=passed, exec_info=answer, test_info=shown)


def _characters(answer: RunCodeResponse) -> int:
    results = filter(None, (answer.compile_result, answer.run_result))
    return sum(len(result.stdout or "") + len(result.stderr or "") for result in results)


def _over_limit() -> RunCodeResponse:
    """Return the response of a run that was killed for its output."""
    message = f"output limit of {OUTPUT_LIMIT} characters for all runs of a submit exceeded\n"
    killed = CommandResult(
        status=CommandStatus.FINISHED, return_code=-signal.SIGKILL, stdout="", stderr=message
    )
    return RunCodeResponse(status=RunStatus.FAILED, run_result=killed)


def _shortened(case: StdioCase) -> StdioCase:
    """Shorten the long texts of a case in the middle.

    Source: SandboxFusion 469de08, ``truncate_str`` in ``sandbox/utils/common.py``.
    """
    return StdioCase.model_construct(
        input={name: _cut(text) for name, text in case.input.items()},
        output={name: _cut(text) for name, text in case.output.items()},
    )


def _cut(text: str) -> str:
    if len(text) <= LONGEST_SHOWN:
        return text
    kept = (LONGEST_SHOWN - len(PLACEHOLDER)) // 2
    return text[:kept] + PLACEHOLDER + text[-kept:]
