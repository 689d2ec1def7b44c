"""All cases of an answer in one ``/run_code``: the default.

Limits are CPU seconds; what the machine's load could have decided (a case stopped by the wall
guard, or that ended just beyond its CPU limit) runs a second time with the sandbox to itself.
Expected outputs stay here.
"""

from collections.abc import Iterable
from dataclasses import replace

from services.judge import calls
from services.judge.harness.wire import CaseRun
from services.judge.methods import function_tests
from services.judge.methods.base import Task
from services.judge.methods.call_wrapper import wrap_call
from services.judge.methods.cases import CaseChecker, failure_detail, single_outcome
from services.judge.outcome import CaseOutcome, Judgement
from shared.extraction import extract
from shared.schemas import StdioTests
from shared.statuses import CaseCode, FinalStatus

NAME = "batch"
_COMPILE_TIMEOUT = "compile_timeout"
_NOT_RUN = "not_run"


async def judge(task: Task) -> Judgement:
    tests = task.problem.tests
    if not isinstance(tests, StdioTests):
        return await function_tests.judge(task, tests)
    checker = CaseChecker.of(task, tests)
    settings = task.settings
    found = extract(task.completion, language=settings.language, policy=settings.extraction)
    if not found.found:
        return Judgement(
            NAME, checker.name, tests.cases, status=FinalStatus.SYNTAX_ERROR, detail=found.reason
        )
    program = wrap_call(found.code, tests.fn_name) if tests.fn_name else found.code
    return await _Answer(program, tests, checker).judge(task)


class _Answer:
    def __init__(self, program: str, tests: StdioTests, checker: CaseChecker) -> None:
        self._program = program
        self._tests = tests
        self._checker = checker

    async def judge(self, task: Task) -> Judgement:
        places = list(range(self._tests.cases))
        outcomes = await self._run(task, places)
        doubtful = [place for place in places if outcomes[place].doubtful]
        if not task.settings.confirm_timeouts:
            doubtful = []
        again: dict[int, CaseOutcome] = {}
        if doubtful:
            again = await self._run(_confirming(task, outcomes.values()), doubtful)
        ran = [place for place in doubtful if outcomes[place].detail != _NOT_RUN]
        outcomes |= again
        await self._checker.check(task, outcomes)
        return Judgement(
            NAME,
            self._checker.name,
            self._tests.cases,
            [outcomes[place] for place in places],
            confirmed=len(ran),
            flipped=sum(not _late(again[place]) for place in ran),
        )

    async def _run(self, task: Task, places: list[int]) -> dict[int, CaseOutcome]:
        inputs = [self._tests.inputs[place] for place in places]
        run = await calls.run_cases(task, self._program, inputs)
        if run.compile_error is not None:
            return self._not_compiled(run, places)
        outcomes = {places[i]: self._outcome(task, places[i], run.cases[i]) for i in run.cases}
        # What the harness could not tell is judged by a call of its own per case.
        singles = await calls.run_singles(task, self._program, inputs, run.lost)
        for i, response in singles.items():
            stdin, expected = inputs[i], self._tests.outputs[places[i]]
            outcome = single_outcome(response, stdin, expected, self._checker.passes)
            outcomes[places[i]] = replace(outcome, doubtful=outcome.code is CaseCode.TIMEOUT)
        if run.late:
            # As doubtful as the time-outs that kept them from running.
            doubtful = any(outcome.doubtful for outcome in outcomes.values())
            for place in places:
                left_out = self._case(place, CaseCode.TIMEOUT, _NOT_RUN)
                outcomes.setdefault(place, replace(left_out, doubtful=doubtful))
        return outcomes

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        code, detail, doubtful = self._code(task, place, run)
        return CaseOutcome(
            code=code,
            duration=run.wall,
            detail=detail,
            input=self._tests.inputs[place],
            expected=self._tests.outputs[place],
            actual=run.stdout.decode("utf-8", "backslashreplace"),
            stderr=run.stderr,
            cpu_time=run.cpu,
            memory=run.memory,
            doubtful=doubtful,
        )

    def _code(self, task: Task, place: int, run: CaseRun) -> tuple[CaseCode, str | None, bool]:
        late, doubtful = calls.lateness(task, run)
        if late:
            return CaseCode.TIMEOUT, "wall_guard" if run.limit == "wall" else None, doubtful
        if run.limit == "output":
            return CaseCode.RUNTIME_ERROR, "output_limit", False
        if run.exit_code != 0:
            return CaseCode.RUNTIME_ERROR, failure_detail(run.exit_code, run.stderr), False
        try:
            passed = self._checker.passes(run.stdout.decode(), self._tests.outputs[place])
        except UnicodeDecodeError:
            return CaseCode.WRONG_ANSWER, "not_utf8", False
        return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None, False

    def _not_compiled(self, run: "calls.BatchRun", places: list[int]) -> dict[int, CaseOutcome]:
        detail = _COMPILE_TIMEOUT if run.compile_timeout else None
        # The compiler's limit is one of wall-clock time.
        late = run.compile_timeout
        outcomes = {
            p: replace(self._case(p, CaseCode.COMPILE_ERROR, detail), doubtful=late) for p in places
        }
        outcomes[places[0]] = replace(outcomes[places[0]], stderr=run.compile_error)
        return outcomes

    def _case(self, place: int, code: CaseCode, detail: str | None) -> CaseOutcome:
        stdin, expected = self._tests.inputs[place], self._tests.outputs[place]
        return CaseOutcome(code, detail=detail, input=stdin, expected=expected)


def _late(case: CaseOutcome) -> bool:
    return case.code is CaseCode.TIMEOUT or case.detail == _COMPILE_TIMEOUT


def _confirming(task: Task, outcomes: Iterable[CaseOutcome]) -> Task:
    """By itself, and with as many time-outs left to it as the sure ones among the cases leave."""
    task = task.by_itself()
    if (allowed := task.settings.max_timeouts) is None:
        return task
    sure = sum(case.code is CaseCode.TIMEOUT and not case.doubtful for case in outcomes)
    left = {"max_timeouts": max(1, allowed - sure)}
    return replace(task, settings=task.settings.model_copy(update=left))
