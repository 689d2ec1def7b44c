"""Means, percentiles and intervals, which are None where there is nothing to compute them from."""

import math
from collections.abc import Sequence

# Two-sided 95 % quantile of the normal distribution.
Z95 = 1.959963984540054


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Percentile with linear interpolation between the closest ranks.

    With the values sorted as x_0 … x_{n-1} and h = (n - 1) * percent / 100, it is
    x_⌊h⌋ + (h - ⌊h⌋) * (x_⌈h⌉ - x_⌊h⌋). Source: Hyndman & Fan 1996, definition 7; what
    ``numpy.percentile`` does by default.
    """
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low + (position - math.floor(position)) * (high - low)


def wilson_interval(share: float | None, n: int) -> list[float] | None:
    """Wilson score interval at 95 % for a share found in n independent trials, as [low, high].

    With z = 1.96: (p + z²/2n ± z * √(p(1 - p)/n + z²/4n²)) / (1 + z²/n). Source: Wilson 1927,
    "Probable inference, the law of succession, and statistical inference".
    """
    if share is None or n == 0:
        return None
    scale = 1 + Z95**2 / n
    centre = (share + Z95**2 / (2 * n)) / scale
    half = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2)) / scale
    # Rounding matters above all at 0 and 1.
    return enclosing(max(0.0, centre - half), min(1.0, centre + half), share)


def enclosing(low: float, high: float, value: float) -> list[float]:
    """An interval as [low, high], widened where rounding put the value itself outside."""
    return [min(low, value), max(high, value)]
