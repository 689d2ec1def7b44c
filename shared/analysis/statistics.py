"""Descriptive statistics: mean, percentile, Wilson interval, pass@k. None for no data.

Needs no numpy, so that every image can import it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

# A published metric: a number, an interval [low, high], or None where it is not defined.
MetricValue = float | int | list[float] | None
Metrics = dict[str, MetricValue]

# Two-sided 95 % quantile of the normal distribution.
Z95 = 1.959963984540054


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Percentile with linear interpolation between the closest ranks.

    With the values sorted as x_0 … x_{n-1} and h = (n - 1) * percent / 100, it is
    x_⌊h⌋ + (h - ⌊h⌋) * (x_⌈h⌉ - x_⌊h⌋). Source: Hyndman & Fan 1996, definition 7, the default
    of ``numpy.percentile``.
    """
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low + (position - math.floor(position)) * (high - low)


def wilson_interval(share: float | None, n: int) -> list[float] | None:
    """Wilson score interval at 95 % for a share observed in n independent trials, as [low, high].

    With z = 1.96: (p + z²/2n ± z * √(p(1 - p)/n + z²/4n²)) / (1 + z²/n). Source: Wilson 1927,
    "Probable inference, the law of succession, and statistical inference".
    """
    if share is None or n == 0:
        return None
    scale = 1 + Z95**2 / n
    centre = (share + Z95**2 / (2 * n)) / scale
    half = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2)) / scale
    # Without this, rounding excludes the share itself at 0 and 1.
    return enclosing(max(0.0, centre - half), min(1.0, centre + half), share)


def share_over_problems(
    part: int, whole: int, problems: int
) -> tuple[float | None, list[float] | None]:
    """A share of samples, such as accepted@1, and its Wilson interval with n problems."""
    share = ratio(part, whole)
    return share, wilson_interval(share, problems)


def enclosing(low: float, high: float, value: float) -> list[float]:
    """An interval as [low, high], widened where rounding put the value itself outside."""
    return [min(low, value), max(high, value)]


def pass_at_k(n: int, accepted: int, k: int) -> float:
    """Unbiased pass@k of one problem from n samples, of which ``accepted`` were accepted.

    1 - C(n - c, k) / C(n, k). Source: Chen et al. 2021, "Evaluating large language models trained
    on code", equation 1.

    Raises:
        ValueError: Not 0 <= accepted <= n or not 1 <= k <= n.
    """
    if not (0 <= accepted <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} is not defined for {accepted} of {n} samples")
    return 1 - math.comb(n - accepted, k) / math.comb(n, k)


def sample_sizes(n: int) -> list[int]:
    """The values of k to report: powers of two below n, and n."""
    powers = [2**exponent for exponent in range(n.bit_length()) if 2**exponent < n]
    return [*powers, n] if n else []


def flat_metrics(metrics: Mapping[str, MetricValue]) -> dict[str, float]:
    """Split intervals into ``<metric>_low`` and ``<metric>_high``, for tools without intervals.

    Undefined metrics (None) are left out.
    """
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, list):
            low, high = value
            flat |= {f"{name}_low": low, f"{name}_high": high}
        elif value is not None:
            flat[name] = value
    return flat


# Scores corrected for tests that accept wrong programs or reject right ones. With the tests' true
# negative rate q0 and true positive rate q1, a share p of accepted answers is made of θ right ones
# by p = θ q1 + (1 - θ)(1 - q0), so θ = (p + q0 - 1) / (q0 + q1 - 1). Source: Rogan & Gladen 1978,
# "Estimating prevalence from the results of a screening test".

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
        ((rate.effective * rate.rate + 1) / (rate.effective + 2), rate.effective + 2)
        for rate in (rates.negative, rates.positive)
    )
    theta = (p + q0 - 1) / (q0 + q1 - 1)
    spread0, spread1 = q0 * (1 - q0) / n0, q1 * (1 - q1) / n1
    shift = 2 * Z95**2 * (theta * spread1 - (1 - theta) * spread0)
    variance = p * (1 - p) / n + theta**2 * spread1 + (1 - theta) ** 2 * spread0
    half = Z95 * math.sqrt(variance) / (q0 + q1 - 1)
    low, high = (min(1.0, max(0.0, theta + shift + sign * half)) for sign in (-1, 1))
    return Corrected(value, enclosing(low, high, value))
