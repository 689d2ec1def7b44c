"""Batch method, the default: all cases of an answer in one ``/run_code``, run by the harness.

Limits are CPU seconds. Expected outputs stay in the judge.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import HarnessRun
from services.judge.conventions import with_preamble
from services.judge.methods.base import Method, Task
from services.judge.programs import failure_detail
from services.judge.special_judge import SpecialJudge
from services.judge.verdict import (
    CaseOutcome,
    Lateness,
    Outcomes,
    apply_budget,
    not_run,
)
from shared.checkers import Checker, get_checker
from shared.extraction import extract
from shared.harness.wire import STRETCH, CaseRun
from shared.schemas import StdioTests
from shared.statuses import CaseCode, JudgeMethod, VerdictDetail
from shared.text import shown

# Bytes of an output that is kept even though it is right.
_SHORT = 2000


class BatchMethod(Method):
    name = JudgeMethod.BATCH
    has_budget = True

    def __init__(self, task: Task, tests: StdioTests) -> None:
        settings = task.settings
        self._special = SpecialJudge.of(tests)
        # Until the special judge runs, once all outputs are available, exit code 0 passes.
        name = tests.checker or settings.effective_checker
        self.checker = name if self._special is None else self._special.name
        self._passes: Checker = get_checker(name) if self._special is None else _passes_for_now
        self.extraction = extract(
            task.completion,
            language=settings.language,
            entry_point=tests.fn_name,
        )
        self._tests = tests
        self._program = self.extraction.code
        if tests.fn_name is None and settings.language == "python":
            self._program = with_preamble(self._program, tests.convention)

    def _run(self, task: Task, cases: Sequence[int]) -> Awaitable[HarnessRun[CaseOutcome]]:
        inputs = [self._tests.inputs[place] for place in cases]
        return calls.run_and_convert(
            task, self._program, inputs, lambda i, case: self._outcome(task, cases[i], case)
        )

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        run = await self._run(task, cases)
        if run.compile_error is not None:
            first = calls.rejected(task, run)
            rest = replace(first, stderr=None, compiling=None)
            return {
                place: self._with_texts(place, first if place == cases[0] else rest)
                for place in cases
            }
        outcomes = {
            cases[i]: replace(outcome, compiling=run.compiling[i]) if run.compiling else outcome
            for i, outcome in run.cases.items()
        }
        allowed = task.settings.max_timeouts
        for i in run.lost:
            outcomes[cases[i]] = self._with_texts(cases[i], calls.LOST)
        skipped = {
            place: not_run(self._tests.inputs[place], self._tests.outputs[place])
            for place in cases
            if place not in outcomes
        }
        return apply_budget(allowed, {**outcomes, **skipped})

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        return outcomes if self._special is None else await self._special.check(task, outcomes)

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = calls.measured(task, run)
        code, detail = self._code(place, run, outcome.lateness)
        waited = run.wall < STRETCH * calls.case_limits(task).wall
        if detail is VerdictDetail.WALL_GUARD and not waited:
            detail = None  # the machine had no processor for it: it did not wait by itself
        actual = self._kept(run.stdout, code, recorded=task.recorded == "all")
        return self._with_texts(place, replace(outcome, code=code, detail=detail, actual=actual))

    def _kept(self, output: bytes, code: CaseCode, *, recorded: bool) -> str | None:
        """Return what later steps need of an output: a long one only for a special judge."""
        if code is CaseCode.PASSED and (self._special or len(output) <= _SHORT):
            return output.decode()
        if code is CaseCode.PASSED and not recorded:
            return None
        return shown(output.decode("utf-8", "backslashreplace"))

    def _code(
        self, place: int, run: CaseRun, late: Lateness
    ) -> tuple[CaseCode, VerdictDetail | str | None]:
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

    def _with_texts(self, place: int, outcome: CaseOutcome) -> CaseOutcome:
        return replace(
            outcome, input=self._tests.inputs[place], expected=self._tests.outputs[place]
        )


def _passes_for_now(actual: str, expected: str) -> bool:
    return True
