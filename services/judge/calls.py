"""Programs of an answer in the sandbox: many cases in one call, or each in one of its own."""

import asyncio
import base64
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from services.judge.harness import harness_files, source, wire
from services.judge.harness.wire import CallResult, CaseLimits, CaseRun
from services.judge.methods.base import Task
from services.judge.sandbox import RunCode, RunCodeResponse, SandboxUnavailableError, Usage
from shared.service.logs import get_logger

log = get_logger(__name__)

# Bytes of input that go into one call, as far as it is more than one case.
_MAX_INPUT = 16 * 1024 * 1024

# Where more than this part of a case's CPU time was the kernel's, the machine may be why it took so
# long: a page of memory costs several times as much where others want memory, too.
_KERNEL_PART = 0.1


@dataclass(slots=True)
class BatchRun:
    """The cases of one program, by their place among the inputs.

    Attributes:
        compile_error: What the compiler said, where it refused.
        late: Whether cases were left out after as many time-outs as are allowed.
        lost: Cases of which the harness could not tell how they ended.
    """

    cases: dict[int, CaseRun] = field(default_factory=dict)
    compile_error: str | None = None
    compile_timeout: bool = False
    late: bool = False
    lost: list[int] = field(default_factory=list)


def case_limits(task: Task) -> CaseLimits:
    settings, limits = task.settings, task.limits
    # With the sandbox to itself a case waits for nobody.
    factor = min(2.0, settings.wall_factor) if task.alone else settings.wall_factor
    grace = max(settings.cpu_grace, factor) if task.alone else settings.cpu_grace
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


async def run_cases(task: Task, program: str, inputs: Sequence[str]) -> BatchRun:
    """Run a program on all inputs, in as few calls as the sandbox's own limit allows.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable answer.
    """
    run = BatchRun()
    todo = list(range(len(inputs)))
    limits = case_limits(task)
    while todo:
        chunk = _chunk(todo, inputs)
        got = await _call(task, program, [inputs[i] for i in chunk], limits)
        if got.compiled not in ("ok", None):
            run.compile_error, run.compile_timeout = got.compile_output, got.compiled == "timeout"
            return run
        run.cases |= {chunk[place]: case for place, case in got.cases.items()}
        todo = [i for i in todo if i not in run.cases]
        if got.end == "timeouts":
            run.late = True
            return run
        # An answer has its time-outs all in all, and not anew with each call.
        late = sum(case.limit in ("cpu", "wall") for case in got.cases.values())
        limits = replace(limits, timeouts=max(0, limits.timeouts - late))
        if not got.cases or got.end in (None, "lost"):
            run.lost = todo
            return run
    return run


def _chunk(todo: Sequence[int], inputs: Sequence[str]) -> list[int]:
    chunk: list[int] = []
    size = 0
    for index in todo:
        size += len(inputs[index])
        if chunk and size > _MAX_INPUT:
            break
        chunk.append(index)
    return chunk


async def _call(task: Task, program: str, inputs: Sequence[str], limits: CaseLimits) -> CallResult:
    key, language = secrets.token_bytes(32), task.settings.language
    result = CallResult()

    def usage_of(response: RunCodeResponse) -> Usage:
        nonlocal result
        result = wire.decode_results(response.file(wire.RESULTS), key)
        cases = result.cases.values()
        return Usage(sum(case.cpu for case in cases), sum(case.wall for case in cases))

    response = await task.sandbox.run_code(
        RunCode(
            code=source("boot"),
            language="python",
            stdin=wire.encode_order(key, language, limits, inputs),
            compile_timeout=10,
            run_timeout=limits.call,
            memory_limit_mb=-1,  # the harness limits each case; it is not to be limited itself
            files={
                **harness_files(),
                wire.ANSWER: base64.b64encode(program.encode()).decode(),
            },
            fetch_files=(wire.RESULTS,),
            usage_of=usage_of,
        ),
        task.attempts,
        alone=task.alone,
    )
    if result.compiled == "missing":
        raise SandboxUnavailableError([f"the sandbox cannot compile: {result.compile_output}"])
    if result.end is None:
        run = response.run_result
        log.info(
            "harness was broken off",
            cases=len(result.cases),
            of=len(inputs),
            return_code=run.return_code if run else None,
            stderr=(run.stderr or "")[-500:] if run else None,
        )
    return result


async def run_single(task: Task, program: str, stdin: str) -> RunCodeResponse:
    """Run a program once, as ``/run_code`` does it: limits are wall-clock seconds.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable answer.
    """
    limits = task.limits
    request = RunCode(
        code=program,
        language=task.settings.language,
        stdin=stdin,
        compile_timeout=limits.timeout,
        run_timeout=limits.timeout,
        memory_limit_mb=limits.memory_limit_mb,
    )
    return await task.sandbox.run_code(request, task.attempts, alone=task.alone)


async def run_singles(
    task: Task, program: str, inputs: Sequence[str], places: Iterable[int]
) -> dict[int, RunCodeResponse]:
    """Run a program on some of the inputs, ``judge.case_concurrency`` calls at once.

    Raises:
        SandboxUnavailableError: As ``run_single``.
    """
    slots = asyncio.Semaphore(1 if task.alone else task.settings.case_concurrency)

    async def run(place: int) -> RunCodeResponse:
        async with slots:
            return await run_single(task, program, inputs[place])

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {place: group.create_task(run(place)) for place in places}
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return {place: work.result() for place, work in tasks.items()}


def lateness(task: Task, run: CaseRun) -> tuple[bool, bool]:
    """Whether a case took too long, and whether the load of the machine may be the reason."""
    allowed = case_limits(task).cpu
    killed = run.limit in ("cpu", "wall") or run.cpu >= allowed
    if task.alone:
        # The kernel's work for a case takes now this long, now that, even on an idle machine.
        return killed or run.user > task.limits.timeout, False
    if killed and run.user >= (1 - _KERNEL_PART) * allowed:
        return True, False
    return killed or run.cpu > task.limits.timeout, True
