"""Batch method, the default: all cases of an answer in one ``/run_code``, run by the harness.

Limits are CPU seconds. Expected outputs stay in the judge.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from services.judge import calls
from services.judge.harness.sources import source
from services.judge.methods.base import Method, Task
from services.judge.programs import failure_detail, wrap_call
from services.judge.requests import RunCode
from services.judge.sandbox import SandboxUnavailableError
from services.judge.verdict import (
    CaseOutcome,
    Lateness,
    Outcomes,
    apply_budget,
    lateness,
    not_run,
    shown,
    wall_clock_lateness,
    was_killed,
)
from shared.checkers import Checker, get_checker
from shared.extraction import extract
from shared.harness.wire import CaseRun
from shared.schemas import InfraFailure, StdioTests, sha256
from shared.statuses import CaseCode, FailureKind, JudgeMethod, VerdictDetail


class BatchMethod(Method):
    name = JudgeMethod.BATCH

    def __init__(self, task: Task, tests: StdioTests) -> None:
        settings = task.settings
        self._checker = CaseChecker.of(task, tests)
        self.checker = self._checker.name
        self.extraction = extract(
            task.completion,
            language=settings.language,
            entry_point=tests.fn_name,
            policy=settings.extraction,
        )
        self._tests = tests
        code = self.extraction.code
        self._program = wrap_call(code, tests.fn_name) if tests.fn_name else code

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        inputs = [self._tests.inputs[place] for place in cases]
        run = await calls.run_and_convert(
            task, self._program, inputs, lambda i, case: self._outcome(task, cases[i], case)
        )
        if run.compile_error is not None:
            return self._not_compiled(run, cases, alone=task.alone)
        outcomes = {cases[i]: outcome for i, outcome in run.cases.items()}
        allowed = task.settings.max_timeouts
        for i in run.lost:
            lost = self._case(cases[i], CaseCode.RUNTIME_ERROR, VerdictDetail.HARNESS_KILLED)
            outcomes[cases[i]] = replace(lost, killed=True)
        skipped = {
            place: not_run(self._tests.inputs[place], self._tests.outputs[place])
            for place in cases
            if place not in outcomes
        }
        return apply_budget(allowed, {**outcomes, **skipped})

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        return await self._checker.check(task, outcomes)

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        allowed = calls.case_limits(task).cpu
        late = lateness(run, task.limits.timeout, allowed, alone=task.alone)
        code, detail = self._code(place, run, late)
        return CaseOutcome(
            code=code,
            duration=run.wall,
            detail=detail,
            input=self._tests.inputs[place],
            expected=self._tests.outputs[place],
            actual=self._kept(run.stdout, code),
            stderr=run.stderr,
            cpu_time=run.cpu,
            memory=run.memory,
            lateness=late,
            killed=was_killed(run, allowed),
        )

    def _kept(self, output: bytes, code: CaseCode) -> str | None:
        """Return what later steps need of an output: all of it only for a special judge."""
        if code is CaseCode.PASSED:
            return output.decode() if self._checker.source is not None else None
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
            passed = self._checker.passes(run.stdout.decode(), self._tests.outputs[place])
        except UnicodeDecodeError:
            return CaseCode.WRONG_ANSWER, VerdictDetail.NOT_UTF8
        return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None

    def _not_compiled(
        self, run: calls.HarnessRun[CaseOutcome], cases: Sequence[int], *, alone: bool
    ) -> Outcomes:
        detail = VerdictDetail.COMPILE_TIMEOUT if run.compile_timeout else None
        late = wall_clock_lateness(run.compile_timeout, alone=alone)
        outcomes = {
            place: replace(self._case(place, CaseCode.COMPILE_ERROR, detail), lateness=late)
            for place in cases
        }
        outcomes[cases[0]] = replace(outcomes[cases[0]], stderr=run.compile_error)
        return outcomes

    def _case(self, place: int, code: CaseCode, detail: VerdictDetail | None) -> CaseOutcome:
        stdin, expected = self._tests.inputs[place], self._tests.outputs[place]
        return CaseOutcome(code, detail=detail, input=stdin, expected=expected)


@dataclass(frozen=True)
class CaseChecker:
    """Checker of a problem: a built-in one, or the problem's own program (special judge).

    A special judge is Python source that defines ``check(input, output, expected)``. It runs in the
    sandbox once all outputs are available. Until then a case with exit code 0 counts as passed.
    """

    name: str
    source: str | None
    passes: Checker

    @classmethod
    def of(cls, task: Task, tests: StdioTests) -> Self:
        if tests.checker_source is not None:
            name = f"python:{sha256(tests.checker_source)[:8]}"
            return cls(name, tests.checker_source, lambda actual, expected: True)
        name = tests.checker or task.settings.checker or "tokens"
        return cls(name, None, get_checker(name))

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        """Run the special judge, if any, on the cases that passed so far.

        Raises:
            SandboxUnavailableError: The special judge failed; the answer is not at fault.
        """
        places = sorted(p for p, case in outcomes.items() if case.code is CaseCode.PASSED)
        if self.source is None or not places:
            return outcomes
        passed = await self._verdicts(task, [outcomes[place] for place in places])
        wrong = [place for place, good in zip(places, passed, strict=True) if not good]
        checked = {p: replace(outcomes[p], code=CaseCode.WRONG_ANSWER) for p in wrong}
        return {**outcomes, **checked}

    async def _verdicts(self, task: Task, cases: Sequence[CaseOutcome]) -> list[bool]:
        fields = [{"input": c.input, "output": c.actual, "expected": c.expected} for c in cases]
        request = RunCode(
            code=f"{self.source}\n\n{source('checking')}",
            language="python",
            stdin=json.dumps(fields),
            compile_timeout=10,
            run_timeout=task.limits.timeout * max(4, len(cases)),
            memory_limit_mb=-1,
            fetch_files=("verdicts",),
        )
        response = await task.sandbox.run_code(request, task.attempts, alone=task.alone)
        marks = response.file("verdicts").decode("ascii", "replace")
        if len(marks) != len(cases):
            stderr = (response.run_result.stderr if response.run_result else None) or ""
            failure = InfraFailure(kind=FailureKind.CHECKER, text=stderr[-300:])
            raise SandboxUnavailableError([failure])
        return [mark == "1" for mark in marks]
