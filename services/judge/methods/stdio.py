"""Tests with inputs and expected outputs: programs, and calls of a function by name.

The harness runs all cases of an answer in one call. Limits are CPU seconds.
Expected outputs stay in the judge.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import Method, Task
from services.judge.special_judge import SpecialJudge
from services.judge.verdict import (
    CaseOutcome,
    Lateness,
    Outcomes,
    apply_budget,
    exit_detail,
    failure_detail,
)
from shared.checkers import Checker, get_checker
from shared.extraction import extract, future_imports
from shared.harness.wire import STRETCH, CaseRun, FunctionEnd, FunctionReport, FunctionTests
from shared.schemas import StdioTests
from shared.statuses import CaseCode, Convention, JudgeMethod, VerdictDetail
from shared.text import shown

# Bytes of an output that is kept even though it is right.
_SHORT = 2000
_Code = tuple[CaseCode, VerdictDetail | str | None]

# The imports and recursion limit that LiveCodeBench, verl and APPS give an answer. Sources:
# ``prime_code/utils.py`` and ``sandbox_fusion/utils.py`` of verl 0.9.1, ``import_string`` of
# ``lcb_runner/evaluation/testing_util.py`` of LiveCodeBench, ``run_test`` of
# ``eval/testing_util.py`` of APPS. How results compare is in ``shared.harness.function_results``.

# Modules that verl and LiveCodeBench import for the answer, in their order.
_STAR = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
    *("builtins", "typing"),
)
IMPORTS = "".join(
    [f"from {module} import *\n" for module in _STAR]
    + [f"import {module}\n" for module in _STAR[:-2]]
)
_APPS = """\
import sys, time, itertools, collections, math, fractions, random, heapq
from itertools import accumulate, product, permutations, combinations
from collections import Counter, OrderedDict, deque, defaultdict, ChainMap
from functools import lru_cache
from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2
from typing import List, Tuple
from heapq import *
"""

_PREAMBLES = {
    Convention.VERL: IMPORTS,
    Convention.LIVECODEBENCH: f"{IMPORTS}sys.setrecursionlimit(50000)\n",
    Convention.APPS: _APPS,
}


class BatchMethod(Method):
    name = JudgeMethod.BATCH
    has_budget = True

    def __init__(self, task: Task, tests: StdioTests) -> None:
        settings = task.settings
        self._special = SpecialJudge.of(tests)
        # Until the special judge runs, once all outputs are available, exit code 0 passes.
        name = tests.checker or settings.effective_checker
        self.checker = name if self._special is None else self._special.name
        self._passes: Checker = get_checker(name) if self._special is None else lambda *_: True
        language, function = settings.language, tests.fn_name
        self.extraction = extract(task.completion, language=language, entry_point=function)
        self._tests = tests
        self._program = self.extraction.code
        convention = tests.convention if function is None and language == "python" else None
        if convention and convention is not Convention.VERL:  # which sets nothing for programs
            futures, program = future_imports(self._program)  # they must come first
            self._program = "\n".join([*futures, _preamble(convention, program) + program])
        self._inputs: Sequence[str] = tests.inputs
        self._language = language

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        run = await calls.run_harness(
            task,
            self._program,
            [self._inputs[place] for place in cases],
            lambda i, case: self._outcome(task, cases[i], case),
            self._language,
        )
        lost, outcomes = set(run.lost), Outcomes()
        for i, place in enumerate(cases):
            if run.rejected:
                outcome = replace(run.rejected, stderr=None, compiling=None) if i else run.rejected
            elif i in run.cases:
                outcome = replace(run.cases[i], compiling=run.compiling)
            else:
                outcome = calls.LOST if i in lost else CaseOutcome(CaseCode.NOT_RUN)
            outcomes[place] = replace(
                outcome, input=self._tests.inputs[place], expected=self._tests.outputs[place]
            )
        return apply_budget(task.settings.max_timeouts, outcomes)

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        return outcomes if self._special is None else await self._special.check(task, outcomes)

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = calls.measured(task, run)
        code, detail = self._code(place, run, outcome.lateness)
        waited = run.wall < STRETCH * calls.case_limits(task).wall
        if detail is VerdictDetail.WALL_GUARD and not waited:
            detail = None  # the machine had no processor for it: it did not wait by itself
        actual = self._kept(run.stdout, code, recorded=task.recorded == "all")
        return replace(outcome, code=code, detail=detail, actual=actual)

    def _kept(self, output: bytes, code: CaseCode, *, recorded: bool) -> str | None:
        """Return what later steps need of an output: a long one only for a special judge."""
        if code is CaseCode.PASSED and (self._special or len(output) <= _SHORT):
            return output.decode()
        if code is CaseCode.PASSED and not recorded:
            return None
        return shown(output.decode("utf-8", "backslashreplace"))

    def _code(self, place: int, run: CaseRun, late: Lateness) -> _Code:
        if late is not Lateness.IN_TIME:
            return CaseCode.TIMEOUT, VerdictDetail.WALL_GUARD if run.limit == "wall" else None
        if run.limit == "output":
            return CaseCode.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT
        if run.exit_code != 0:
            return CaseCode.RUNTIME_ERROR, failure_detail(run.exit_code, run.stderr)
        try:
            passed = self._passes(run.stdout.decode(), self._tests.outputs[place])
        except UnicodeDecodeError:
            return CaseCode.WRONG_ANSWER, VerdictDetail.NOT_UTF8
        return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None


class CallMethod(BatchMethod):
    """Calls of a function by name: the answer in one process, its values compared in another.

    Each call is a case: a fresh process that has loaded the answer. Nothing that it prints matters.
    """

    def __init__(self, task: Task, tests: StdioTests) -> None:
        super().__init__(task, tests)
        self.checker = "values"
        self._language = "functions"
        # The preamble imports functions such as ``gcd``. An answer may import them, too.
        name = re.escape(tests.fn_name or "")
        self._is_named = re.search(rf"\b{name}\b|\bimport\s*\*", self._program)
        before, convention = _preamble(tests.calls, self._program), tests.calls.value
        self._inputs = [
            FunctionTests(before, "", [(*texts, convention)], [f".{tests.fn_name}"]).payload
            for texts in zip(tests.inputs, tests.outputs, strict=True)
        ]

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = super()._outcome(task, place, run)
        if outcome.code is CaseCode.WRONG_ANSWER:
            return replace(outcome, actual=run.stderr, stderr="")
        return replace(outcome, actual=None)

    def _code(self, place: int, run: CaseRun, late: Lateness) -> _Code:
        if late is not Lateness.IN_TIME:
            return super()._code(place, run, late)
        report = FunctionReport.decode(run.stdout)
        code = CaseCode(report.codes[0]) if report.codes else CaseCode.RUNTIME_ERROR
        if report.end is FunctionEnd.UNUSABLE:
            return CaseCode.API_ERROR, VerdictDetail.TEST_ERROR
        if report.end is FunctionEnd.MISSING or not self._is_named:
            return CaseCode.RUNTIME_ERROR, VerdictDetail.MISSING_FUNCTION
        exit_code = run.exit_code if report.lost else 1
        return code, exit_detail([code], exit_code, run.stderr, timed_out=False)


def _preamble(convention: Convention, answer: str) -> str:
    """Return what a convention puts before an answer; numpy, which loads slowly, if it is used."""
    numpy = convention is Convention.APPS and re.search(r"\bnp\b", answer)
    return _PREAMBLES[convention] + ("import numpy as np\n" if numpy else "")
