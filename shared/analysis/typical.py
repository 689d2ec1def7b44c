"""Figures that are typical of models of a size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

TypicalMetric = Literal[
    "accepted_at_1", "pass_ratio_mean", "exec_success_rate", "syntax_error_rate", "timeout_rate"
]
METRICS: tuple[TypicalMetric, ...] = get_args(TypicalMetric)


@dataclass(frozen=True, slots=True)
class TypicalRange:
    """Typical lowest and highest value of a metric (shares, 0 to 1), and the models it is from."""

    low: float
    high: float
    of: str

    def excludes(self, interval: Sequence[float]) -> bool:
        """Whether no value of an interval [low, high] is in the range."""
        return interval[1] < self.low or interval[0] > self.high


def typical_range(size: float, dataset: str, metric: TypicalMetric) -> TypicalRange | None:
    """The typical range of a metric for models of ``size`` billions of parameters, if known."""
    if dataset in ("codecontests_valid", "codecontests_test"):
        low, high = _CODE_CONTESTS_SIZES
        return _CODE_CONTESTS[metric] if low <= size < high else None
    if dataset == "humaneval" and metric == "accepted_at_1" and size >= _SMALLEST:
        return next((found for below, found in _HUMANEVAL if size < below), None)
    return None


# The ranges: docs/acceptance.md has the models and sources.

_CODE_CONTESTS_SIZES = (6.0, 9.0)
_SEVEN = "7B base models, greedy"
_CODE_CONTESTS: Mapping[TypicalMetric, TypicalRange] = {
    "accepted_at_1": TypicalRange(0.03, 0.10, _SEVEN),
    "pass_ratio_mean": TypicalRange(0.10, 0.25, _SEVEN),
    "exec_success_rate": TypicalRange(0.50, 0.80, _SEVEN),
    "syntax_error_rate": TypicalRange(0.05, 0.20, _SEVEN),
    "timeout_rate": TypicalRange(0.05, 0.15, _SEVEN),
}
_SMALLEST = 0.3
# By the size, in billions of parameters, below which a range holds.
_HUMANEVAL: tuple[tuple[float, TypicalRange], ...] = (
    (2.0, TypicalRange(0.10, 0.75, "models of 0.3 to 2 B")),
    (5.0, TypicalRange(0.15, 0.85, "models of 2 to 5 B")),
    (10.0, TypicalRange(0.25, 0.90, "models of 5 to 10 B")),
    (20.0, TypicalRange(0.30, 0.90, "models of 10 to 20 B")),
    (40.0, TypicalRange(0.50, 0.95, "models of 20 to 40 B")),
    (float("inf"), TypicalRange(0.55, 0.95, "models of 40 B and more")),
)
