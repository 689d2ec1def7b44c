"""A completion to judge, and the calls that run many cases of its program with the harness."""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError
from services.judge.verdict import (
    BORDERLINE,
    CaseOutcome,
    Compiling,
    Outcomes,
    lateness,
    wall_clock_lateness,
    was_killed,
)
from shared.config import Config, JudgeConfig, SandboxConfig
from shared.extraction import Extraction
from shared.harness.wire import MAX_INPUTS, CaseLimits, CaseRun, RunCasesRequest
from shared.schemas import InfraFailure, Problem, RecordedCases, StdioTests
from shared.statuses import CaseCode, FailureKind, JudgeMethod, VerdictDetail

Result = TypeVar("Result")

# A call that a sandbox, or a proxy before it, finds too large.
_TOO_LARGE = "http_413"
# An answer that kills the harness in every case must not hold the sandbox for long.
_MOST_LOSSES = 10
# Address space of the language's own libraries, in MiB, which a contest does not count.
_LIBRARIES = 64
# Characters that are processed in the event loop; more would hold up the other completions.
_CHARACTERS_AT_ONCE = 100_000


async def compute(work: Callable[[], Result], characters: int) -> Result:
    """Call ``work``, which processes so many characters: in a thread if they are many."""
    return work() if characters <= _CHARACTERS_AT_ONCE else await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class Task:
    """One completion to judge.

    Attributes:
        settings: Judge settings of the data set.
        limits: Sandbox settings, with the limits of one test case.
        alone: Whether each call waits until nothing else runs in the sandbox.
        max_call_input: Bytes of input per call, in JSON; a single case may exceed it.
        recorded: Cases that are recorded beside the verdict.
    """

    problem: Problem
    completion: str
    settings: JudgeConfig
    limits: SandboxConfig
    sandbox: SandboxClient
    attempts: Attempts = field(default_factory=Attempts)
    alone: bool = False
    max_call_input: int = 16 * 1024 * 1024
    recorded: RecordedCases = "none"

    @classmethod
    def of(
        cls,
        config: Config,
        problem: Problem,
        completion: str,
        sandbox: SandboxClient,
        recorded: RecordedCases = "none",
    ) -> Self:
        """Return the task of a completion under a run's config."""
        settings = config.judge.for_dataset(problem.dataset)
        limits = limits_of(problem, settings, config.sandbox)
        return cls(problem, completion, settings, limits, sandbox, recorded=recorded)

    @property
    def total(self) -> int:
        """Cases to judge: all of the problem, or with ``judge.max_cases`` the first ones."""
        tests, most = self.problem.tests, self.settings.max_cases
        if most is None or not isinstance(tests, StdioTests):
            return tests.cases
        return min(tests.cases, most)

    def confirming(self, max_timeouts: int | None) -> Self:
        """Return the task for exclusive use of the sandbox: load cannot cause a time-out there."""
        settings = self.settings.model_copy(update={"max_timeouts": max_timeouts})
        return replace(self, alone=True, settings=settings)


def limits_of(problem: Problem, settings: JudgeConfig, limits: SandboxConfig) -> SandboxConfig:
    """Return the limits of one case: with ``judge.problem_limits`` the problem's own."""
    info = problem.info
    if not settings.problem_limits:
        return limits
    own: dict[str, float] = {}
    if info.time_limit and 0 < info.time_limit < math.inf:
        own["timeout"] = info.time_limit
    if info.memory_limit and info.memory_limit > 0:
        own["memory_limit_mb"] = math.ceil(info.memory_limit / 2**20) + _LIBRARIES
    return limits.model_copy(update=own)


class Method(ABC):
    """Runs the cases of one answer; the rules for the verdict are in ``services.judge.verdict``.

    Attributes:
        name: Method recorded in the verdict.
        checker: Name of the checker.
        extraction: The code of the answer; None if SandboxFusion extracts it.
        shared_process: Whether the tests ran in the answer's process, where it can reach them.
        has_budget: Whether ``judge.max_timeouts`` limits its time-outs.
    """

    has_budget: bool = False
    name: JudgeMethod
    checker: str
    extraction: Extraction | None = None
    shared_process: bool = False

    @abstractmethod
    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        """Run at least these cases; return the outcomes of all cases that ran."""

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        """Apply the problem's own checker, if it has one, to the cases that passed so far."""
        return outcomes


# Many cases per call


@dataclass(slots=True)
class HarnessRun(Generic[Result]):
    """Cases of one program as the harness ran them, by index of their input.

    Attributes:
        rejected: The outcome of all cases if the compiler rejected the program, or had no time.
        lost: Indices of the cases for which the harness, killed meanwhile, reported no result.
        compiling: Compiling in the last call.

    Cases that are neither in ``cases`` nor lost are those behind the last allowed time-out.
    """

    cases: dict[int, Result] = field(default_factory=dict)
    rejected: CaseOutcome | None = None
    lost: list[int] = field(default_factory=list)
    compiling: Compiling | None = None


LOST = CaseOutcome(CaseCode.RUNTIME_ERROR, detail=VerdictDetail.HARNESS_KILLED, killed=True)
"""The outcome of a case whose harness was killed: by its answer, if it happens again."""


def case_limits(task: Task) -> CaseLimits:
    settings, limits = task.settings, task.limits
    # A case that has the sandbox to itself does not compete with other programs.
    factor = min(2.0, settings.wall_factor) if task.alone else settings.wall_factor
    grace = max(settings.cpu_grace, BORDERLINE) if task.alone else settings.cpu_grace
    cpu = limits.timeout * grace
    return CaseLimits(
        cpu=cpu,
        wall=max(limits.timeout * factor, cpu + 1),
        compile=max(limits.timeout, settings.compile_timeout),
        budget=settings.call_seconds,
        memory=limits.memory_limit_mb * 1024 * 1024,
        output=settings.max_output_mb * 1024 * 1024,
        processes=settings.max_processes,
        timeouts=settings.max_timeouts or 0,
    )


def measured(task: Task, run: CaseRun, compiling: Compiling | None = None) -> CaseOutcome:
    """Return the measurements of a case as an outcome; the caller sets the code and the output."""
    killed_at = case_limits(task).cpu
    return CaseOutcome(
        CaseCode.PASSED,
        duration=run.wall,
        stderr=run.stderr,
        cpu_time=run.cpu,
        memory=run.memory,
        lateness=lateness(run, task.limits.timeout, killed_at, alone=task.alone),
        killed=was_killed(run, killed_at),
        exit_code=run.exit_code,
        compiling=compiling,
    )


def raw(_place: int, case: CaseRun) -> CaseRun:
    """Keep a run as it is."""
    return case


async def run_harness(
    task: Task,
    program: str,
    inputs: Sequence[str],
    convert: Callable[[int, CaseRun], Result],
    language: str | None = None,
) -> HarnessRun[Result]:
    """Run a program on all inputs, in as few calls as the limits of a call allow.

    A harness that is killed in a shared sandbox leaves all its other cases lost. Alone, only the
    case at which that happened is lost, until it has happened ``_MOST_LOSSES`` times.

    Args:
        task: The completion.
        program: Its program.
        inputs: Standard input of each case.
        convert: Makes of a case what is kept. Together the outputs of an answer may be larger than
            the memory; those of one call are not.
        language: The program's; None for that of the task's settings.
    """
    run: HarnessRun[Result] = HarnessRun()
    todo = list(range(len(inputs)))
    limits, max_size = case_limits(task), task.max_call_input
    while todo:
        chunk = _chunk(todo, inputs, max_size)
        request = RunCasesRequest(
            code=program,
            language=language or task.settings.language,
            inputs=[inputs[i] for i in chunk],
            limits=limits,
        )
        try:
            result = await task.sandbox.run_cases(request, task.attempts, alone=task.alone)
        except SandboxUnavailableError as error:
            if error.failures[-1].kind != _TOO_LARGE or len(chunk) == 1:
                raise
            max_size = min(max_size, sum(_size(inputs[i]) for i in chunk)) // 2
            continue
        run.compiling = Compiling(result.compile_seconds, result.compile_output or None)
        if result.compiled == "missing":
            failure = InfraFailure(kind=FailureKind.COMPILER, text=result.compile_output)
            raise SandboxUnavailableError([failure])
        if result.compiled not in ("ok", None):
            late = result.compiled == "timeout"
            run.rejected = CaseOutcome(
                CaseCode.COMPILE_ERROR,
                detail=VerdictDetail.COMPILE_TIMEOUT if late else None,
                stderr=result.compile_output,
                lateness=wall_clock_lateness(late, alone=task.alone),
                compiling=run.compiling,
            )
            return run
        # A sandbox that confuses calls may report cases that this one does not have.
        cases = {chunk[i]: case for i, case in result.cases.items() if 0 <= i < len(chunk)}
        run.cases |= await compute(
            lambda cases=cases: {i: convert(i, case) for i, case in cases.items()},  # type: ignore[misc]
            sum(len(case.stdout) for case in cases.values()),
        )
        todo = [i for i in todo if i not in run.cases]
        # The budget of time-outs applies to the whole answer, not to each call.
        timeouts = sum(_timed_out(task, case) for case in result.cases.values())
        if 0 < limits.timeouts <= timeouts:
            return run
        limits = replace(limits, timeouts=max(0, limits.timeouts - timeouts))
        if todo and (not result.cases or result.end in (None, "lost")):
            if task.alone and result.compiled is None:
                # An empty program shows that the harness itself runs.
                empty = RunCasesRequest(code="", inputs=[""], limits=limits)
                check = await task.sandbox.run_cases(empty, task.attempts, alone=True)
                if check.end != "done":
                    raise SandboxUnavailableError([InfraFailure(kind=FailureKind.HARNESS)])
            run.lost.append(todo.pop(0))
            if not task.alone or len(run.lost) >= _MOST_LOSSES:
                run.lost += todo
                return run
    return run


async def run_once(
    task: Task, program: str, stdin: str, language: str
) -> tuple[CaseOutcome, CaseRun | None]:
    """Run a program on one input; without a run, the outcome has the reason."""
    run = await run_harness(task, program, [stdin], raw, language)
    if run.rejected is not None:
        return run.rejected, None
    if not run.cases:
        return LOST, None
    return measured(task, run.cases[0], run.compiling), run.cases[0]


def _timed_out(task: Task, case: CaseRun) -> bool:
    """Whether a case certainly counts as a time-out, or at least until it is confirmed."""
    return case.limit in ("cpu", "wall") or case.user > task.limits.timeout


def _chunk(todo: Sequence[int], inputs: Sequence[str], max_size: int) -> list[int]:
    """Return the next inputs that are together no larger than a call may be, at least one."""
    size = 0
    for count, index in enumerate(todo[:MAX_INPUTS]):
        size += _size(inputs[index])
        if count and size > max_size:
            return list(todo[:count])
    return list(todo[:MAX_INPUTS])


def _size(text: str) -> int:
    """Bytes of a text in the body of a call, without its quotes."""
    return len(json.dumps(text)) - 2
