"""Verdict rules: lateness, doubtful outcomes, and aggregation of cases into a verdict.

All functions are pure; none runs a program.
"""

import re
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from shared.harness.languages import LANGUAGES
from shared.harness.wire import CaseRun
from shared.schemas import (
    CaseResult,
    FailedCase,
    Generation,
    InfraFailure,
    JudgedCode,
    RecordedCases,
    Verdict,
)
from shared.statuses import (
    CASE_STATUS,
    NOT_RUN,
    PARTS_OF_PROGRAMS,
    CaseCode,
    FinalStatus,
    JudgeMethod,
    VerdictDetail,
    aggregate_cases,
)
from shared.text import shown

# If the kernel used more than this share of a case's CPU time, the time-out may be due to the
# machine's load: a page fault costs several times as much under memory pressure.
_KERNEL_SHARE = 0.1
# Load can make a program look slower, never faster: caches and cores are shared with the rest of
# the machine (by up to 24 % in docs/benchmarks.md). Up to this multiple of the limit, a case that
# ran alone is measured once more.
BORDERLINE = 1.25
# A busy machine makes even the shortest of several runs this much longer, so that much beyond the
# limit is in time where a case ran alone.
_TOLERANCE = 1.03
# Codes of cases that do not count against an answer.
_UNFAILED = (CaseCode.PASSED, CaseCode.NOT_RUN)
# Methods whose cases keep verl's codes, in which a Python syntax error is a runtime error.
_VERL_CODES = (JudgeMethod.COMPUTE_SCORE, JudgeMethod.SUBMIT)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# What programs that get no memory print; a runtime prints more after it.
_REFUSED = [sign for language in LANGUAGES.values() for sign in language.refused]


class Lateness(Enum):
    """Whether a case exceeded its time limit; ``DOUBTFUL`` if load may have delayed it."""

    IN_TIME = "in_time"
    DOUBTFUL = "doubtful"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Compiling:
    """Seconds that the compiler took, if the sandbox reports them, and its messages."""

    seconds: float | None = None
    stderr: str | None = None


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of one test case.

    Attributes:
        duration: Wall-clock seconds in the sandbox.
        cpu_time: CPU seconds of the program; None if the method does not measure it.
        memory: Peak resident set in bytes; None if the method does not measure it.
        lateness: Lateness of the run; function tests share one run and report it on the first case.
        killed: Whether the case or its harness was killed, but not at one of our limits: perhaps by
            the kernel, because somebody else used up the memory.
        exit_code: Exit code of the program, a signal's number as -n; None if it is not known.
        compiling: What is known of the compiler; None if nothing is, or nobody records it.
    """

    code: CaseCode
    duration: float = 0.0
    detail: VerdictDetail | str | None = None
    input: str | None = None
    expected: str | None = None
    actual: str | None = None
    stderr: str | None = None
    cpu_time: float | None = None
    memory: int | None = None
    lateness: Lateness = Lateness.IN_TIME
    killed: bool = False
    exit_code: int | None = None
    compiling: Compiling | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the outcome may be somebody else's fault."""
        return self.killed or self.lateness is Lateness.DOUBTFUL


Outcomes = dict[int, CaseOutcome]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcomes of one answer's cases, before they are aggregated.

    ``status`` is set if the cases do not determine it. ``cases_total`` is the number of tests of
    the problem. ``confirmed`` counts the cases that ran again because their outcome was doubtful;
    ``flipped`` counts how many of them were then neither late nor killed.
    """

    method: JudgeMethod
    checker: str
    cases_total: int
    cases: Sequence[CaseOutcome] = ()
    status: FinalStatus | None = None
    detail: VerdictDetail | str | None = None
    confirmed: int = 0
    flipped: int = 0
    code: JudgedCode | None = None
    shared_process: bool = False


# Lateness and confirmation


def lateness(run: CaseRun, timeout: float, killed_at: float, *, alone: bool) -> Lateness:
    """Assess a case's CPU time.

    Args:
        run: Measurements of the case.
        timeout: The limit in CPU seconds.
        killed_at: CPU seconds at which the harness kills a case.
        alone: Whether it ran with the sandbox to itself.
    """
    killed = run.limit in ("cpu", "wall") or run.cpu >= killed_at
    if alone:
        # What a busy machine adds, in the kernel above all, differs from run to run.
        if killed or run.cpu > BORDERLINE * timeout:
            return Lateness.LATE
        return Lateness.DOUBTFUL if run.cpu > _TOLERANCE * timeout else Lateness.IN_TIME
    if killed and run.user >= (1 - _KERNEL_SHARE) * killed_at:
        return Lateness.LATE
    return Lateness.DOUBTFUL if killed or run.cpu > timeout else Lateness.IN_TIME


def was_killed(run: CaseRun, killed_at: float) -> bool:
    """Whether a case ended by SIGKILL without having reached one of our limits.

    A case that kills itself cannot be told apart.
    """
    return run.exit_code == -signal.SIGKILL and run.limit is None and run.cpu < killed_at


def wall_clock_lateness(timed_out: bool, *, alone: bool) -> Lateness:
    """Assess a run with a wall-clock limit: a time-out is doubtful if the sandbox was shared."""
    if not timed_out:
        return Lateness.IN_TIME
    return Lateness.LATE if alone else Lateness.DOUBTFUL


def _doubtful(outcomes: Mapping[int, CaseOutcome], timeouts: bool) -> set[int]:
    return {
        place for place, case in outcomes.items() if case.killed or (timeouts and case.doubtful)
    }


def _left_out(outcomes: Mapping[int, CaseOutcome]) -> set[int]:
    return {place for place, case in outcomes.items() if case.code is CaseCode.NOT_RUN}


def doubtful_cases(outcomes: Mapping[int, CaseOutcome], *, timeouts: bool = True) -> list[int]:
    """Return the cases to run again, alone; those with a doubtful time-out only if ``timeouts``.

    Cases that were not run, for too many time-outs, are among them if an outcome is doubtful.
    """
    doubtful = _doubtful(outcomes, timeouts)
    return sorted(doubtful | _left_out(outcomes)) if doubtful else []


def cases_left(
    outcomes: Mapping[int, CaseOutcome],
    settled: Collection[int],
    allowed: int | None,
    *,
    timeouts: bool = True,
) -> list[int]:
    """Return the cases to run once more after a run alone.

    They are those that are still doubtful, except the ``settled`` ones. Once there are none, those
    that were not run follow, if doubtful time-outs were not confirmed and left room for them.
    """
    doubtful = _doubtful(outcomes, timeouts) - set(settled)
    if doubtful or timeouts_left(allowed, outcomes.values()) == 0:
        return sorted(doubtful)
    return sorted(_left_out(outcomes))


def settle(before: Mapping[int, CaseOutcome], again: Mapping[int, CaseOutcome]) -> Outcomes:
    """Replace outcomes by those of a run alone; who is killed both times is at fault."""
    certain = {
        place: replace(case, killed=False, detail=VerdictDetail.KILLED_TWICE)
        for place, case in again.items()
        if case.killed and place in before and before[place].killed
    }
    return {**before, **again, **certain}


def count_confirmed(
    doubtful: Iterable[int], first: Mapping[int, CaseOutcome], again: Mapping[int, CaseOutcome]
) -> tuple[int, int]:
    """Count the cases that ran again, and how many of them were neither late nor killed then."""
    left_out = _left_out(first) | _left_out(again)
    ran = [again[place] for place in doubtful if place in again and place not in left_out]
    flipped = sum(
        case.lateness is Lateness.IN_TIME
        and case.code is not CaseCode.API_ERROR
        and not case.killed
        and case.detail is not VerdictDetail.KILLED_TWICE
        for case in ran
    )
    return len(ran), flipped


# Causes of exits


def last_line(text: str | None) -> str:
    return (text or "").rstrip().rsplit("\n", 1)[-1]


def missing_module(stderr: str | None) -> str | None:
    """Return the module that a program could not find, if that ended it."""
    match = _NO_MODULE.match(last_line(stderr))
    return match[1] if match else None


def failure_detail(exit_code: int | None, stderr: str | None) -> VerdictDetail | str | None:
    """Return the cause of a failed run if it is known."""
    if cause := _cause(stderr):
        return cause
    return _signal_name(exit_code) if exit_code is not None and exit_code < 0 else None


def exit_detail(
    codes: Sequence[CaseCode], exit_code: int | None, stderr: str, timed_out: bool
) -> VerdictDetail | str | None:
    """Return the cause of the runtime errors of function tests if it is known."""
    if CaseCode.RUNTIME_ERROR not in codes or timed_out:
        return None
    if cause := _cause(stderr):
        return cause
    if exit_code == 0 or last_line(stderr).startswith("SystemExit"):
        return VerdictDetail.EARLY_EXIT
    return _signal_name(exit_code)


def _cause(stderr: str | None) -> VerdictDetail | None:
    # An uncaught std::bad_alloc ends a program by SIGABRT.
    last = last_line(stderr).strip().removeprefix("what():").lstrip()
    if last.startswith(("MemoryError", "std::bad_alloc")):
        return VerdictDetail.MEMORY_LIMIT
    if any(sign in (stderr or "") for sign in _REFUSED):
        return VerdictDetail.MEMORY_LIMIT
    return VerdictDetail.MISSING_MODULE if missing_module(stderr) else None


def _signal_name(exit_code: int | None) -> str | None:
    """Return the signal of an exit code, -n or a shell's 128 + n; None for any other code."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if exit_code < 0 else None


# The budget of time-outs


def apply_budget(allowed: int | None, outcomes: Mapping[int, CaseOutcome]) -> Outcomes:
    """Mark the cases behind the last allowed time-out as not run, also those that happened to run.

    Otherwise the result would depend on how many cases fit into a call.
    """
    late = [place for place in sorted(outcomes) if outcomes[place].code is CaseCode.TIMEOUT]
    if allowed is None or len(late) < allowed:
        return dict(outcomes)
    last = late[allowed - 1]
    return {
        place: case if place <= last else not_run(case.input, case.expected)
        for place, case in outcomes.items()
    }


def within_budget(
    allowed: int | None, outcomes: Mapping[int, CaseOutcome], todo: Sequence[int]
) -> tuple[Sequence[int], int | None]:
    """Return those of the cases ``todo`` that the budget does not cut, and their own budget.

    Time-outs of other cases count only where they come before.
    """
    if allowed is None or not todo:
        return todo, allowed
    first = min(todo)
    left = timeouts_left(allowed, (case for place, case in outcomes.items() if place < first))
    return (todo, left) if left else ((), 0)


def not_run(stdin: str | None, expected: str | None) -> CaseOutcome:
    """The outcome of a case that was left over when the budget was used up."""
    return CaseOutcome(CaseCode.NOT_RUN, input=stdin, expected=expected)


def timeouts_left(allowed: int | None, outcomes: Iterable[CaseOutcome]) -> int | None:
    """Return how many time-outs the budget has left; None if there is no budget."""
    if allowed is None:
        return None
    return max(0, allowed - sum(case.code is CaseCode.TIMEOUT for case in outcomes))


# Aggregation


def is_syntax_error(case: CaseOutcome) -> bool:
    """Whether the Python interpreter could not compile the program.

    The message then has no traceback header, unlike that of a SyntaxError raised at run time (by
    ``exec`` or an import).
    """
    return (
        case.code is CaseCode.RUNTIME_ERROR
        and not case.actual
        and last_line(case.stderr).startswith(("SyntaxError: ", "IndentationError: ", "TabError: "))
        and "Traceback (most recent call last)" not in (case.stderr or "")
    )


def conclude(
    method: JudgeMethod, checker: str, total: int, outcomes: Mapping[int, CaseOutcome]
) -> Judgement:
    """Apply the method's rules that depend on all cases of an answer together."""
    cases = [outcomes[place] for place in sorted(outcomes)]
    if len(cases) < total and all(case.code is CaseCode.PASSED for case in cases):
        missing = VerdictDetail.MISSING_RESULTS
        return Judgement(method, checker, total, cases, FinalStatus.API_ERROR, missing)
    rejected = method in _VERL_CODES and all(map(is_syntax_error, cases))
    return Judgement(method, checker, total, cases, FinalStatus.SYNTAX_ERROR if rejected else None)


def to_verdict(
    generation: Generation,
    judgement: Judgement,
    requests: int,
    failures: Sequence[InfraFailure],
    worker: str,
) -> Verdict:
    """Aggregate a judgement into the verdict that is stored."""
    codes = [case.code for case in judgement.cases]
    status = judgement.status or aggregate_cases(codes)
    passed = sum(code is CaseCode.PASSED for code in codes)
    failed = next((i for i, code in enumerate(codes) if code not in _UNFAILED), None)
    detail = judgement.detail or _detail(judgement, status)
    module = next(filter(None, (missing_module(case.stderr) for case in judgement.cases)), None)
    cpu_times = [case.cpu_time for case in judgement.cases if case.cpu_time is not None]
    return Verdict(
        dataset=generation.dataset,
        problem_id=generation.problem_id,
        sample_index=generation.sample_index,
        completion_sha256=generation.completion_sha256,
        final_status=status,
        detail=detail,
        missing_module=module if detail is VerdictDetail.MISSING_MODULE else None,
        accepted=status is FinalStatus.SUCCESS,
        pass_ratio=passed / judgement.cases_total if judgement.cases_total else 0.0,
        cases_passed=passed,
        cases_total=judgement.cases_total,
        cases_not_run=codes.count(CaseCode.NOT_RUN),
        case_codes=[int(code) for code in codes],
        total_judge_time=sum(case.duration for case in judgement.cases),
        cpu_time=sum(cpu_times) if cpu_times else None,
        peak_memory=max((case.memory for case in judgement.cases if case.memory), default=None),
        error_breakdown=_breakdown(codes),
        first_failed_case=None if failed is None else _failed_case(failed, judgement.cases[failed]),
        method=judgement.method,
        checker=judgement.checker,
        attempts=requests,
        infra_failures=list(failures),
        confirmed=judgement.confirmed,
        flipped=judgement.flipped,
        worker=worker,
        judged_at=time.time(),
        code=judgement.code,
        shared_process=judgement.shared_process,
    )


def case_results(judgement: Judgement, recorded: RecordedCases) -> tuple[CaseResult, ...]:
    """Return the cases of an answer that are recorded, without what the problem tells of them."""
    if recorded == "none":
        return ()
    chosen = [
        (place, case)
        for place, case in enumerate(judgement.cases)
        if recorded == "all" or case.code not in _UNFAILED
    ]
    return tuple(_case_result(*pair) for pair in (chosen[:1] if recorded == "first" else chosen))


def _case_result(place: int, case: CaseOutcome) -> CaseResult:
    if case.code is CaseCode.NOT_RUN:
        return CaseResult(case_index=place, status=NOT_RUN)
    compiling = case.compiling or Compiling()
    stderr = _shortened(case.stderr)
    compile_stderr = _shortened(compiling.stderr) or None
    ran: dict[str, Any] = {}
    if case.code is CaseCode.COMPILE_ERROR:
        compile_stderr = compile_stderr or stderr or None
    else:
        ran = {
            "actual": _shortened(case.actual),
            "stderr": stderr,
            "exit_code": case.exit_code,
            "duration": _rounded(case.duration),
            "cpu_time": _rounded(case.cpu_time),
            "memory_mb": None if case.memory is None else round(case.memory / 2**20, 3),
        }
    return CaseResult(
        case_index=place,
        status=CASE_STATUS[case.code],
        compile_duration=_rounded(compiling.seconds),
        compile_stderr=compile_stderr,
        **ran,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _detail(judgement: Judgement, status: FinalStatus) -> VerdictDetail | str | None:
    """The first detail of a case with the status, or why code that does not compile is partial."""
    for case in judgement.cases:
        if CASE_STATUS.get(case.code) is status and case.detail:
            return case.detail
    if status is not FinalStatus.SYNTAX_ERROR or judgement.code is None:
        return None
    reason = judgement.code.reason
    return VerdictDetail(reason) if reason in PARTS_OF_PROGRAMS else None


def _breakdown(codes: Sequence[CaseCode]) -> dict[str, int]:
    ran = Counter(CASE_STATUS[code] for code in codes if code in CASE_STATUS)
    names = {FinalStatus.SUCCESS: "passed"}
    shown = [s for s in FinalStatus if s is not FinalStatus.EMPTY_OUTPUT]
    counts = {
        names.get(status, status.value): ran[status]
        for status in shown
        if ran[status] or status is not FinalStatus.API_ERROR
    }
    left = codes.count(CaseCode.NOT_RUN)
    return {**counts, NOT_RUN: left} if left else counts


def _failed_case(index: int, case: CaseOutcome) -> FailedCase:
    return FailedCase(
        case_index=index,
        status=CASE_STATUS[case.code],
        input=_shortened(case.input),
        expected=_shortened(case.expected),
        actual=_shortened(case.actual),
        stderr=_shortened(case.stderr),
    )


def _shortened(text: str | None) -> str | None:
    return text and shown(text)
