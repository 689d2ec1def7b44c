"""Function tests (HumanEval, MBPP): the answer in one process, its tests in another.

The tests call the answer's functions with values, so an answer cannot get at them. Where values are
not enough (see ``shared.function_plan``), or the sandbox is called without the harness, one
program contains the answer and all tests; the verdict then says ``shared_process``.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.judge import calls
from services.judge.methods.base import Method, Task
from services.judge.programs import (
    classify,
    codes_of,
    exit_detail,
    humaneval_program,
    mbpp_program,
)
from services.judge.requests import CommandResult
from services.judge.verdict import (
    CaseOutcome,
    Compiling,
    Lateness,
    Outcomes,
    lateness,
    wall_clock_lateness,
    was_killed,
)
from shared.extraction import called_functions, extract
from shared.function_plan import plan_of, with_prompt
from shared.harness.function_tester import HEADER
from shared.harness.wire import CaseRun, FunctionEnd, FunctionReport, FunctionTests
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, JudgeMethod, VerdictDetail

# CPU seconds of all calls together where each call has the limit, with the reference's own: twice
# the 60 seconds that EvalPlus allows for the base inputs, and for the plus inputs.
ALL_CALLS = 120.0


class FunctionMethod(Method):
    name = JudgeMethod.FUNCTION
    checker = "asserts"

    def __init__(
        self, task: Task, tests: HumanEvalTests | MbppTests, *, harness: bool = True
    ) -> None:
        """Extract the answer, and plan the tests.

        Args:
            task: The completion.
            tests: The problem's tests.
            harness: Whether to run in the harness, with limits in CPU seconds; otherwise one
                program runs directly, with limits in wall-clock seconds.
        """
        self._harness = harness
        self._tests = tests
        self._plan = plan_of(tests)
        self.shared_process = not harness or self._plan.shared is not None
        if isinstance(tests, HumanEvalTests):
            point = tests.entry_point
            self._answer = extract(task.completion, entry_point=point)
            self._shown = [tests.test]
        else:
            called = called_functions(tests.test_list, tests.test_setup_code)
            self._answer = extract(task.completion, entry_point=called)
            self._shown = tests.test_list
        self.extraction = self._answer

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        task = task.in_python()
        if fault := await self._fault(task):
            return self._broken(fault)
        tests = self._plan.tests
        if self._tests.limit_per_call:
            limits = calls.case_limits(task)
            tests = replace(tests, call_limits=[limits.cpu, limits.wall])
            task = _for_all_calls(task)
        if self.shared_process:
            return await self._run_together(task)
        return await self._run_apart(task, tests)

    async def _fault(self, task: Task) -> str | None:
        """Return why the tests cannot run, which no answer can bring about."""
        imports = self._plan.imports
        if self._plan.fault is None and imports:
            failed = await task.sandbox.failed_imports(imports, task.attempts)
            return next(iter(failed.values()), None)
        return self._plan.fault

    def _broken(self, fault: str) -> Outcomes:
        broken = CaseOutcome(CaseCode.API_ERROR, detail=VerdictDetail.TEST_ERROR, stderr=fault)
        return dict.fromkeys(range(len(self._shown)), broken)

    def _lost(self) -> Outcomes:
        """Return the outcomes of a harness that was killed: by its answer, if it happens again."""
        lost = CaseOutcome(CaseCode.RUNTIME_ERROR, detail=VerdictDetail.HARNESS_KILLED, killed=True)
        return dict.fromkeys(range(len(self._shown)), lost)

    # In two processes

    async def _run_apart(self, task: Task, tests: FunctionTests) -> Outcomes:
        """Run the tests in a process of their own."""
        answer = self._answer.code
        if isinstance(self._tests, HumanEvalTests):
            answer, prelude = with_prompt(self._answer, self._tests)
            tests = replace(tests, prelude=prelude)
        run = await calls.run_functions(task, answer, tests)
        if run.compile_error is not None:
            return self._not_compiled(run, alone=task.alone)
        if not run.cases:
            return self._lost()
        case = run.cases[0]
        report = FunctionReport.decode(case.stdout)
        ended = _ProgramEnd.of_harness(case, task)
        if report.end is FunctionEnd.LATE:
            late = lateness(replace(case, limit="cpu"), case.cpu, case.cpu, alone=task.alone)
            ended = replace(ended, lateness=late)
        return self._outcomes_apart(replace(ended, compiling=run.compiling.get(0)), report)

    def _outcomes_apart(self, ended: "_ProgramEnd", report: FunctionReport) -> Outcomes:
        late = ended.lateness is not Lateness.IN_TIME
        cases = len(self._shown)
        codes = codes_of([CaseCode(code) for code in report.codes], cases, late, None)
        detail = exit_detail(codes, ended.exit_code if report.lost else 1, ended.stderr, late)
        if report.end is FunctionEnd.MISSING:
            detail = VerdictDetail.MISSING_FUNCTION
        elif report.end is FunctionEnd.UNUSABLE:
            return self._broken(ended.stderr)
        # The answer's own exit code, if it ended; otherwise it is that of the tests.
        exit_code = ended.exit_code if report.lost else None
        returned, traceback, frames = ended.stderr.partition(HEADER)
        ended = replace(ended, stdout="", stderr=traceback + frames or returned)
        outcomes = self._outcomes(replace(ended, exit_code=exit_code), codes, detail)
        failed = next((i for i, one in outcomes.items() if one.code is not CaseCode.PASSED), None)
        if traceback and failed is not None:
            outcomes[failed] = replace(outcomes[failed], actual=returned.rstrip())
        return outcomes

    def _not_compiled(self, run: calls.HarnessRun[CaseRun], *, alone: bool) -> Outcomes:
        detail = VerdictDetail.COMPILE_TIMEOUT if run.compile_timeout else None
        ended = _ProgramEnd(
            exit_code=None,
            lateness=wall_clock_lateness(run.compile_timeout, alone=alone),
            stdout="",
            stderr=run.compile_error or "",
            wall=0.0,
            compiling=run.compiling.get(0),
        )
        return self._outcomes(ended, [CaseCode.COMPILE_ERROR] * len(self._shown), detail)

    # In one

    async def _run_together(self, task: Task) -> Outcomes:
        token = secrets.token_hex(16)
        if isinstance(self._tests, HumanEvalTests):
            program = humaneval_program(self._answer, self._tests)
        else:
            program = mbpp_program(self._answer, self._tests)
        if self._harness:
            run = await calls.run_harness(task, program, [token])
            if run.cases:
                ended = _ProgramEnd.of_harness(run.cases[0], task)
                ended = replace(ended, compiling=run.compiling.get(0))
                return self._outcomes_together(ended, token)
            return self._lost()
        response = await calls.run_single(task, program, token)
        if response.run_result is None:
            lost = CaseOutcome(CaseCode.API_ERROR, detail=VerdictDetail.NO_RUN_RESULT)
            return dict.fromkeys(range(len(self._shown)), lost)
        ended = _ProgramEnd.of_single_run(response.run_result, alone=task.alone)
        return self._outcomes_together(ended, token)

    def _outcomes_together(self, ended: "_ProgramEnd", token: str) -> Outcomes:
        codes, detail = classify(
            ended.exit_code,
            ended.stdout,
            ended.stderr,
            token,
            ended.lateness is not Lateness.IN_TIME,
            len(self._shown),
        )
        stdout = re.sub(rf"\n{token} \[.*\]\n", "", ended.stdout)
        return self._outcomes(replace(ended, stdout=stdout), codes, detail)

    def _outcomes(
        self, ended: "_ProgramEnd", codes: Sequence[CaseCode], detail: VerdictDetail | str | None
    ) -> Outcomes:
        # One run for all cases: its time is attributed to the first.
        return {
            place: CaseOutcome(
                code=code,
                duration=0.0 if place else ended.wall,
                detail=None if code is CaseCode.PASSED else detail,
                expected=test,
                actual=ended.stdout,
                stderr=ended.stderr,
                cpu_time=0.0 if place and ended.cpu is not None else ended.cpu,
                memory=ended.memory,
                lateness=Lateness.IN_TIME if place else ended.lateness,
                killed=ended.killed and not place,
                exit_code=ended.exit_code,
                compiling=None if place else ended.compiling,
            )
            for place, (code, test) in enumerate(zip(codes, self._shown, strict=True))
        }


def _for_all_calls(task: Task) -> Task:
    """Return the task with limits of all calls together; only CPU time counts there."""
    limits = {"timeout": max(task.limits.timeout, ALL_CALLS)}
    return replace(
        task,
        limits=task.limits.model_copy(update=limits),
        settings=task.settings.model_copy(update={"wall_factor": 1.0}),
    )


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
    compiling: Compiling | None = None

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
