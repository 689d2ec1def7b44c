"""Calls of a function by name: the answer in one process, its values compared in another.

Each call is a case: a fresh process that has loaded the answer. Nothing that it prints matters.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import HarnessRun
from services.judge.conventions import preamble
from services.judge.methods.base import Task
from services.judge.methods.batch import BatchMethod
from services.judge.programs import exit_detail
from services.judge.verdict import CaseOutcome, Lateness
from shared.harness.wire import CaseRun, FunctionEnd, FunctionReport, FunctionTests
from shared.schemas import StdioTests
from shared.statuses import CaseCode, VerdictDetail

_DETAILS = {
    FunctionEnd.MISSING: VerdictDetail.MISSING_FUNCTION,
    FunctionEnd.UNUSABLE: VerdictDetail.TEST_ERROR,
}


class CallMethod(BatchMethod):
    def __init__(self, task: Task, tests: StdioTests) -> None:
        super().__init__(task, tests)
        self.checker = "values"
        self._convention = tests.calls
        self._preamble = preamble(tests.calls, self._program)

    def _run(self, task: Task, cases: Sequence[int]) -> Awaitable[HarnessRun[CaseOutcome]]:
        return calls.run_and_convert(
            task,
            self._program,
            [self._payload(place) for place in cases],
            lambda i, case: self._outcome(task, cases[i], case),
            "functions",
        )

    def _payload(self, place: int) -> str:
        tests, convention = self._tests, self._convention
        test = (tests.inputs[place], tests.outputs[place], convention.value)
        names = [f".{tests.fn_name}"]
        return FunctionTests(self._preamble, "", [test], names).payload

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = super()._outcome(task, place, run)
        if outcome.code is CaseCode.WRONG_ANSWER:
            return replace(outcome, actual=run.stderr, stderr="")
        return replace(outcome, actual=None)

    def _code(
        self, place: int, run: CaseRun, late: Lateness
    ) -> tuple[CaseCode, VerdictDetail | str | None]:
        if late is not Lateness.IN_TIME:
            return super()._code(place, run, late)
        report = FunctionReport.decode(run.stdout)
        code = CaseCode(report.codes[0]) if report.codes else CaseCode.RUNTIME_ERROR
        detail = _DETAILS.get(report.end) if report.end else None
        if detail is VerdictDetail.TEST_ERROR:
            return CaseCode.API_ERROR, detail
        exit_code = run.exit_code if report.lost else 1
        return code, detail or exit_detail([code], exit_code, run.stderr, timed_out=False)
