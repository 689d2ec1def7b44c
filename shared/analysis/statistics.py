"""Descriptive statistics: mean, percentile, Wilson interval, pass@k. None for no data.

Needs no numpy, so that every image can import it.
"""

import math
from collections.abc import Mapping, Sequence

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
