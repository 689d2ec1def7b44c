"""One rule of a policy against what was found: it passes, fails, or cannot be decided."""

from dataclasses import dataclass
from enum import StrEnum

from services.cli.analysis_policy import Confidence
from shared.analysis.paired import PairedDifference

# Room for the rounding of sums, so that a limit that is met exactly is kept.
_TOLERANCE = 1e-9


class Outcome(StrEnum):
    """What became of a rule, or of all of them."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule, what was found and why that passes or fails.

    ``premise``: without it the other rules mean nothing, so none of them decides.
    """

    dataset: str
    rule: str
    limit: str
    found: str
    outcome: Outcome
    why: str
    premise: bool = False


def premise(dataset: str, rule: str, limit: str, found: str, *, holds: bool, why: str) -> Finding:
    """What has to hold before anything can be said; ``why`` is for where it does not."""
    outcome = Outcome.PASS if holds else Outcome.UNDECIDED
    return Finding(dataset, rule, limit, found, outcome, "" if holds else why, premise=True)


def at_most(dataset: str, rule: str, found: float | None, most: float, *, of: str = "B") -> Finding:
    """A number that has a limit; ``of`` names it in the table."""
    limit = f"{of} ≤ {most:g}"
    if found is None:
        return Finding(dataset, rule, limit, "not known", Outcome.UNDECIDED, "not in the summary")
    if found <= most + _TOLERANCE * abs(most):
        return Finding(dataset, rule, limit, f"{found:.4g}", Outcome.PASS, "within")
    return Finding(dataset, rule, limit, f"{found:.4g}", Outcome.FAIL, "beyond")


def min_difference(
    dataset: str, metric: str, least: float, confidence: Confidence, found: PairedDifference
) -> Finding:
    """A difference that has a lower limit, in shares; shown as percentage points."""
    low, high = _held_against(found, confidence)
    outcome, why = _decided(low, high, least, confidence)
    return Finding(dataset, metric, f"B - A ≥ {100 * least:+.2f}", _said(found), outcome, why)


def max_increase(
    dataset: str, metric: str, most: float, confidence: Confidence, found: PairedDifference
) -> Finding:
    """A difference that has an upper limit."""
    low, high = _held_against(found, confidence)
    outcome, why = _decided(_negative(high), _negative(low), -most, confidence)
    return Finding(dataset, metric, f"B - A ≤ {100 * most:+.2f}", _said(found), outcome, why)


def _decided(
    low: float | None, high: float | None, least: float, confidence: Confidence
) -> tuple[Outcome, str]:
    """Whether all of low … high is at least ``least``, none, or some of it."""
    whole = "difference" if confidence is Confidence.POINT else "whole interval"
    if low is None or high is None:
        return Outcome.UNDECIDED, "too few problems to say"
    if low >= least - _TOLERANCE:
        return Outcome.PASS, f"{whole} within"
    if high < least - _TOLERANCE:
        return Outcome.FAIL, f"{whole} beyond"
    return Outcome.UNDECIDED, "too few problems to say"


def _held_against(
    found: PairedDifference, confidence: Confidence
) -> tuple[float | None, float | None]:
    if confidence is Confidence.POINT:
        return found.difference, found.difference
    return (None, None) if found.ci95 is None else (found.ci95[0], found.ci95[1])


def _said(found: PairedDifference) -> str:
    if found.difference is None:
        return "no pairs"
    difference = f"{100 * found.difference:+.2f}"
    if found.ci95 is None:
        return difference
    return f"{difference} ({100 * found.ci95[0]:+.2f} … {100 * found.ci95[1]:+.2f})"


def _negative(value: float | None) -> float | None:
    return None if value is None else -value
