"""Function tests (HumanEval, MBPP): one program contains the answer and all tests, and runs once.

An answer is accepted only if its tests run to the end: the program reports each test with a random
token, so an early exit passes no further test.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from services.judge import calls
from services.judge.methods.base import Method, Task
from services.judge.programs import classify, humaneval_program, mbpp_program
from services.judge.requests import CommandResult
from services.judge.verdict import (
    CaseOutcome,
    Lateness,
    Outcomes,
    lateness,
    wall_clock_lateness,
    was_killed,
)
from shared.extraction import extract
from shared.harness.wire import CaseRun
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, JudgeMethod, VerdictDetail


class FunctionMethod(Method):
    name = JudgeMethod.FUNCTION
    checker = "asserts"

    def __init__(
        self, task: Task, tests: HumanEvalTests | MbppTests, *, harness: bool = True
    ) -> None:
        """Build the program.

        Args:
            task: The completion, and the extraction policy.
            tests: The problem's tests.
            harness: Whether to run the program in the harness, with limits in CPU seconds;
                otherwise it runs directly, with limits in wall-clock seconds.
        """
        policy = task.settings.extraction
        self._harness = harness
        self._token = secrets.token_hex(16)
        if isinstance(tests, HumanEvalTests):
            point = tests.entry_point
            self.extraction = extract(task.completion, entry_point=point, policy=policy)
            self._program = humaneval_program(self.extraction, tests)
            self._shown = [tests.test]
        else:
            self.extraction = extract(task.completion, policy=policy)
            self._program = mbpp_program(self.extraction, tests)
            self._shown = tests.test_list

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        task = task.in_python()
        if self._harness:
            run = await calls.run_harness(task, self._program, [self._token])
            if run.cases:
                return self._outcomes(_ProgramEnd.of_harness(run.cases[0], task))
            self._harness = False  # this program made the harness fail
        response = await calls.run_single(task, self._program, self._token)
        if response.run_result is None:
            lost = CaseOutcome(CaseCode.API_ERROR, detail=VerdictDetail.NO_RUN_RESULT)
            return dict.fromkeys(range(len(self._shown)), lost)
        return self._outcomes(_ProgramEnd.of_single_run(response.run_result, alone=task.alone))

    def _outcomes(self, ended: "_ProgramEnd") -> Outcomes:
        codes, detail = classify(
            ended.exit_code,
            ended.stdout,
            ended.stderr,
            self._token,
            ended.lateness is not Lateness.IN_TIME,
            len(self._shown),
        )
        if ended.lateness is not Lateness.IN_TIME and set(codes) == {CaseCode.PASSED}:
            codes[-1] = CaseCode.TIMEOUT  # it was late although all tests were reported
        # One run for all cases: its time is attributed to the first.
        return {
            place: CaseOutcome(
                code=code,
                duration=0.0 if place else ended.wall,
                detail=None if code is CaseCode.PASSED else detail,
                expected=test,
                actual=re.sub(rf"\n{self._token} \[.*\]\n", "", ended.stdout),
                stderr=ended.stderr,
                cpu_time=0.0 if place and ended.cpu is not None else ended.cpu,
                memory=ended.memory,
                lateness=Lateness.IN_TIME if place else ended.lateness,
                killed=ended.killed and not place,
            )
            for place, (code, test) in enumerate(zip(codes, self._shown, strict=True))
        }


@dataclass(frozen=True, slots=True)
class _ProgramEnd:
    """Result of the program; times in seconds, memory in bytes."""

    exit_code: int | None
    lateness: Lateness
    stdout: str
    stderr: str
    wall: float
    cpu: float | None = None
    memory: int | None = None
    killed: bool = False

    @classmethod
    def of_harness(cls, run: CaseRun, task: Task) -> "_ProgramEnd":
        killed_at = calls.case_limits(task).cpu
        late = lateness(run, task.limits.timeout, killed_at, alone=task.alone)
        stdout = run.stdout.decode("utf-8", "replace")
        killed = was_killed(run, killed_at)
        return cls(run.exit_code, late, stdout, run.stderr, run.wall, run.cpu, run.memory, killed)

    @classmethod
    def of_single_run(cls, run: CommandResult, *, alone: bool) -> "_ProgramEnd":
        late = wall_clock_lateness(run.status == "TimeLimitExceeded", alone=alone)
        stdout, stderr = run.stdout or "", run.stderr or ""
        return cls(run.return_code, late, stdout, stderr, run.execution_time or 0.0)
