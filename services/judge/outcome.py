"""What a method finds per test case, and how that becomes a verdict."""

import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.judge.sandbox import Attempts
from shared.schemas import FailedCase, Generation, Verdict
from shared.statuses import CASE_STATUS, CaseCode, FinalStatus, fold_cases

_SHOWN_CHARS = 2000


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One test case.

    Attributes:
        duration: Wall-clock seconds in the sandbox.
        cpu_time: CPU seconds of the program, where the method measures it.
        memory: Bytes of its peak resident set, where the method measures it.
        doubtful: Whether the machine's load may have decided it.
    """

    code: CaseCode
    duration: float = 0.0
    detail: str | None = None
    input: str | None = None
    expected: str | None = None
    actual: str | None = None
    stderr: str | None = None
    cpu_time: float | None = None
    memory: int | None = None
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a method says about one answer.

    ``status`` is given where the cases do not decide it: nothing to run, or a syntax error in a
    language that SandboxFusion does not compile. ``cases_total`` is the number of tests that the
    problem has. ``confirmed`` counts the cases that ran a second time because their time-out was
    doubtful, ``flipped`` those of them that ended otherwise then.
    """

    method: str
    checker: str
    cases_total: int
    cases: Sequence[CaseOutcome] = ()
    status: FinalStatus | None = None
    detail: str | None = None
    confirmed: int = 0
    flipped: int = 0


def to_verdict(
    generation: Generation, judgement: Judgement, attempts: Attempts, worker: str
) -> Verdict:
    """Fold a judgement into the record that is kept."""
    codes = [case.code for case in judgement.cases]
    status = judgement.status or fold_cases(codes)
    passed = sum(code is CaseCode.PASSED for code in codes)
    failed = next((i for i, code in enumerate(codes) if code is not CaseCode.PASSED), None)
    return Verdict(
        dataset=generation.dataset,
        problem_id=generation.problem_id,
        sample_index=generation.sample_index,
        completion_sha256=generation.completion_sha256,
        final_status=status,
        detail=judgement.detail or _detail(judgement.cases, status),
        accepted=status is FinalStatus.SUCCESS,
        pass_ratio=passed / judgement.cases_total if judgement.cases_total else 0.0,
        cases_passed=passed,
        cases_total=judgement.cases_total,
        case_codes=[int(code) for code in codes],
        total_judge_time=sum(case.duration for case in judgement.cases),
        cpu_time=_sum(case.cpu_time for case in judgement.cases),
        peak_memory=max((case.memory for case in judgement.cases if case.memory), default=None),
        error_breakdown=_breakdown(codes),
        first_failed_case=None if failed is None else _failed_case(failed, judgement.cases[failed]),
        method=judgement.method,
        checker=judgement.checker,
        attempts=attempts.requests,
        infra_failures=attempts.failures,
        confirmed=judgement.confirmed,
        flipped=judgement.flipped,
        worker=worker,
        judged_at=time.time(),
    )


def signal_name(exit_code: int | None) -> str | None:
    """The signal behind an exit code, -n or a shell's 128 + n; None where there is none."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if exit_code < 0 else None


def shorten(text: str | None, limit: int = _SHOWN_CHARS) -> str | None:
    """Cut the middle out of a long text and say how much went."""
    if text is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _detail(cases: Sequence[CaseOutcome], status: FinalStatus) -> str | None:
    return next((c.detail for c in cases if CASE_STATUS[c.code] is status and c.detail), None)


def _breakdown(codes: Sequence[CaseCode]) -> dict[str, int]:
    counts = Counter(CASE_STATUS[code] for code in codes)
    names = {FinalStatus.SUCCESS: "passed"}
    shown = [s for s in FinalStatus if s is not FinalStatus.EMPTY_OUTPUT]
    return {
        names.get(status, status.value): counts[status]
        for status in shown
        if counts[status] or status is not FinalStatus.API_ERROR
    }


def _failed_case(index: int, case: CaseOutcome) -> FailedCase:
    return FailedCase(
        case_index=index,
        status=CASE_STATUS[case.code],
        input=shorten(case.input),
        expected=shorten(case.expected),
        actual=shorten(case.actual),
        stderr=shorten(case.stderr),
    )
