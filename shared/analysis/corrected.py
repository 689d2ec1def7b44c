"""Scores corrected for tests that accept wrong programs or reject right ones.

With the tests' true negative rate q0 and true positive rate q1, a share p of accepted answers is
made of θ right ones by p = θ q1 + (1 - θ)(1 - q0), so θ = (p + q0 - 1) / (q0 + q1 - 1). Source:
Rogan & Gladen 1978, "Estimating prevalence from the results of a screening test".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shared.analysis.statistics import Z95, enclosing

LEAST_POWER = 0.4
"""Below this q0 + q1 - 1 the tests say too little: no score is corrected."""


@dataclass(frozen=True, slots=True)
class MeanRate:
    """A mean rate over problems.

    Attributes:
        rate: Mean over the problems of each one's share, 0 to 1.
        problems: The number of problems with a known share.
        effective: Size of a sample of independent programs with the same variance of the mean; the
            number of problems if all shares are equal.
    """

    rate: float
    problems: int
    effective: float

    @classmethod
    def of(cls, shares: Sequence[float]) -> Self | None:
        """The mean of each problem's share; None without any."""
        n = len(shares)
        if not n:
            return None
        rate = math.fsum(shares) / n
        squares = math.fsum((share - rate) ** 2 for share in shares)
        variance = squares / (n * (n - 1)) if n > 1 else 0.0
        independent = rate * (1 - rate) / variance if variance > 0 else n
        return cls(rate, n, max(n, independent))


@dataclass(frozen=True, slots=True)
class Corrected:
    """A corrected share with its 95 % interval, both within 0 and 1."""

    value: float
    ci95: list[float]


@dataclass(frozen=True, slots=True)
class SuiteRates:
    """True negative rate q0 and true positive rate q1 of a data set's tests."""

    negative: MeanRate
    positive: MeanRate

    @property
    def power(self) -> float:
        """q0 + q1 - 1 (Youden's J): 1 for perfect tests, 0 for tests that say nothing."""
        return round(self.negative.rate + self.positive.rate - 1, 12)

    @property
    def usable(self) -> bool:
        """Whether a score can be corrected by them."""
        return self.power >= LEAST_POWER


def corrected_share(share: float, problems: int, rates: SuiteRates) -> Corrected | None:
    """Correct a share of accepted answers; None if the tests say too little.

    The interval includes the uncertainty of the share and of both rates. Source: Lang & Reiczigel
    2014, "Confidence limits for prevalence of disease adjusted for estimated sensitivity and
    specificity", with the effective sizes of the rates.

    Args:
        share: Accepted answers / answers.
        problems: The number of problems, which are the independent units.
        rates: Those of the tests.
    """
    if not rates.usable or not problems:
        return None
    value = min(1.0, max(0.0, (share + rates.negative.rate - 1) / rates.power))
    n = problems + Z95**2
    p = (problems * share + Z95**2 / 2) / n
    (q0, n0), (q1, n1) = (
        ((one.effective * one.rate + 1) / (one.effective + 2), one.effective + 2)
        for one in (rates.negative, rates.positive)
    )
    theta = (p + q0 - 1) / (q0 + q1 - 1)
    spread0, spread1 = q0 * (1 - q0) / n0, q1 * (1 - q1) / n1
    shift = 2 * Z95**2 * (theta * spread1 - (1 - theta) * spread0)
    variance = p * (1 - p) / n + theta**2 * spread1 + (1 - theta) ** 2 * spread0
    half = Z95 * math.sqrt(variance) / (q0 + q1 - 1)
    low, high = (min(1.0, max(0.0, theta + shift + sign * half)) for sign in (-1, 1))
    return Corrected(value, enclosing(low, high, value))
