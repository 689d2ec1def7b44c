"""Expectations of canaries: the required verdict of each program, compared with the found one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shared.schemas import Problem
from shared.statuses import CaseCode, FinalStatus
from shared.text import shorten_end

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class ExpectedCase:
    """The result that a case must have.

    Attributes:
        codes: The codes that are right.
        fault: What a sandbox does that judges the case otherwise; a clause without a full stop.
        detail: The detail that the case must have, where the method tells details.
        silent: Whether the program must have been stopped before it printed anything.
        output: The output to the byte, which checkers forgive; None where they decide.
    """

    codes: frozenset[CaseCode]
    fault: str
    detail: str | None = None
    silent: bool = False
    output: str | None = None


@dataclass(frozen=True, slots=True)
class CanaryLimits:
    """Limits under which a canary is judged, in seconds and MiB."""

    timeout: float
    memory_mb: int
    output_mb: int
    processes: int


@dataclass(frozen=True, slots=True)
class Canary:
    """A program, its problem, its limits, and what the verdict on it must be.

    ``statuses`` are those of the whole answer; ``fault`` says what is wrong if it has another.
    ``most_cpu`` is the CPU time after which it was certainly not stopped at its limit, in seconds.
    """

    name: str
    problem: Problem
    completion: str
    limits: CanaryLimits
    cases: Sequence[ExpectedCase]
    statuses: frozenset[FinalStatus]
    fault: str
    most_cpu: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedCase:
    """The result that a case had."""

    code: CaseCode
    detail: str | None = None
    stdout: str | None = None
    stderr: str | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a sandbox made of a canary; ``cpu`` is the CPU time of all cases in seconds."""

    status: FinalStatus
    cases: Sequence[ObservedCase] = field(default_factory=tuple)
    cpu: float = 0.0


def findings(canary: Canary, observed: Observed) -> list[str]:
    """Describe how the verdict on a canary differs from what it must be; empty if it is right."""
    found = list(dict.fromkeys(_cases(canary, observed)))
    if not found and observed.status not in canary.statuses:
        found.append(f"{canary.fault} ({_status(canary, observed)})")
    if not found and canary.most_cpu is not None and observed.cpu > canary.most_cpu:
        found.append(f"{canary.fault} ({observed.cpu:.1f} s of CPU time were used)")
    return found


def only_late(canary: Canary, observed: Observed) -> bool:
    """Whether nothing but time-outs differs: load may be the cause, so it is worth another try."""
    if canary.cases:
        pairs = zip(canary.cases, observed.cases, strict=False)
        wrong = [case for expected, case in pairs if _difference(expected, case)]
        return all(case.code is CaseCode.TIMEOUT for case in wrong)
    return observed.status is FinalStatus.TIMEOUT


def _cases(canary: Canary, observed: Observed) -> Iterator[str]:
    if not canary.cases:
        return  # the status alone tells
    if len(observed.cases) != len(canary.cases):
        yield f"{canary.fault} ({_status(canary, observed)})"
        return
    for expected, case in zip(canary.cases, observed.cases, strict=True):
        if reason := _difference(expected, case):
            yield f"{expected.fault} ({reason})"


def _difference(expected: ExpectedCase, case: ObservedCase) -> str | None:
    if case.code not in expected.codes:
        wanted = " or ".join(sorted(code.name.lower() for code in expected.codes))
        return f"{_shown(case)} instead of {wanted}"
    if expected.detail is not None and case.detail != expected.detail:
        return f"{_shown(case)} instead of {expected.detail}"
    if expected.silent and (case.stdout or "").strip():
        return "the program went on to its end"
    if expected.output is not None and case.stdout != expected.output:
        return f"{case.stdout!r:.60} instead of {expected.output!r:.60}"
    return None


def _shown(case: ObservedCase) -> str:
    name = case.code.name.lower() + (f", {case.detail}" if case.detail else "")
    last = (case.stderr or "").strip().rsplit("\n", 1)[-1]
    return f"{name}: {shorten_end(last, _SHOWN)}" if last else name


def _status(canary: Canary, observed: Observed) -> str:
    wanted = " or ".join(sorted(canary.statuses))
    cases = f" with {len(observed.cases)} cases" if observed.cases else ""
    return f"{observed.status.value}{cases} instead of {wanted}"
