"""Paired difference of two runs: McNemar's test, sign-flip permutation test, statistical power.

Values are between 0 and 1, one per problem and run: accepted, a share of samples, a pass ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from shared.analysis.bootstrap import ClusteredMean, Floats, bootstrap_intervals, group_rows
from shared.analysis.statistics import Z95, enclosing, mean

Z_POWER = NormalDist().inv_cdf(0.8)
FLIPS = 9999
_SEED = 20210708
_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The second run minus the first, over the problems of both.

    Attributes:
        problems: The number of problems; if 0, everything else is None.
        first: Mean of the first run.
        second: Mean of the second run.
        difference: second - first.
        ci95: 95 % confidence interval of the difference.
        p_value: Two-sided, under the hypothesis that both runs are equally good.
        detectable: The smallest difference that is detected with a power of 80 %.
    """

    problems: int
    first: float | None = None
    second: float | None = None
    difference: float | None = None
    ci95: list[float] | None = None
    p_value: float | None = None
    detectable: float | None = None


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> PairedDifference:
    """Compare two runs by the value of each problem.

    If all values are 0 or 1, p is McNemar's and the interval comes from ``discordant_interval``;
    otherwise p is ``sign_flip_p`` and the interval a bootstrap over problems. If no problem
    differs, resampling shows no spread, and the wider formulas for 0 and 1 are used.

    Args:
        first: Problem id to value.
        second: The same problems.

    Raises:
        ValueError: The runs have different problems.
    """
    if first.keys() != second.keys():
        raise ValueError("paired runs must have the same problems")
    names = sorted(first)
    if not names:
        return PairedDifference(0)
    differences = [second[name] - first[name] for name in names]
    ci95, p_value, spread = _interval_and_p(
        differences, {*first.values(), *second.values()} <= {0, 1}
    )
    return PairedDifference(
        problems=len(names),
        first=mean([first[name] for name in names]),
        second=mean([second[name] for name in names]),
        difference=math.fsum(differences) / len(names),
        ci95=ci95,
        p_value=p_value,
        detectable=detectable_difference(spread, len(names)),
    )


def mcnemar_exact(lost: int, gained: int) -> float:
    """Two-sided exact p of McNemar's test: discordant pairs go either way with probability 1/2.

    min(1, 2 * Σ_{i ≤ min(lost, gained)} C(n, i) / 2^n with n = lost + gained). Source: McNemar
    1947, "Note on the sampling error of the difference between correlated proportions".
    """
    n = lost + gained
    tail = term = 1
    for i in range(min(lost, gained)):
        term = term * (n - i) // (i + 1)
        tail += term
    return float(min(1.0, 2 * tail / 2**n))


def discordant_interval(lost: int, gained: int, pairs: int) -> list[float]:
    """95 % confidence interval of the difference of two paired shares, from the discordant pairs.

    With p = (gained + 1) / (n + 2), q = (lost + 1) / (n + 2) and n pairs it is
    p - q ± 1.96 * √((p + q - (p - q)²) / (n + 2)). Source: Bonett & Price 2012, "Adjusted Wald
    confidence interval for a difference of binomial proportions based on paired data". Unlike
    a bootstrap, its width is positive when no pair is discordant.
    """
    p, q = (gained + 1) / (pairs + 2), (lost + 1) / (pairs + 2)
    half = Z95 * math.sqrt((p + q - (p - q) ** 2) / (pairs + 2))
    low, high = max(-1.0, p - q - half), min(1.0, p - q + half)
    return enclosing(low, high, (gained - lost) / pairs)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p of the paired permutation test: the sign of each problem is flipped at random.

    (1 + number of flips with |mean| at least as large) / (1 + ``FLIPS``). For values of 0 and 1 it
    approximates McNemar's test. Source: Fisher 1935, "The design of experiments", section 21; the
    added 1 for the observed data: Phipson & Smyth 2010.
    """
    column = group_rows(np.array([differences]).T)[:, 0]
    found = abs(float(column.sum()))
    tolerance = 1e-9 * float(np.abs(column).sum())
    return (1 + _at_least(column, found - tolerance)) / (1 + FLIPS)


def detectable_difference(spread: float, problems: int) -> float:
    """Minimum detectable difference of a test at 5 % with a power of 80 %, at most 1.

    (1.96 + 0.84) * spread / √n. Source: Miller 2024, "Adding error bars to evals", section on
    power; for shares it is the first term of Connor 1987, "Sample size for testing differences
    in proportions for the paired-sample design".

    Args:
        spread: Standard deviation of a problem's difference if the true difference is 0.
        problems: n.
    """
    return min(1.0, (Z95 + Z_POWER) * spread / math.sqrt(problems))


def _interval_and_p(
    differences: Sequence[float], binary: bool
) -> tuple[list[float] | None, float | None, float]:
    """Confidence interval, p and standard deviation of the differences."""
    n = len(differences)
    if binary or not any(differences):
        lost, gained = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
        spread = math.sqrt((lost + gained + 2) / (n + 2))
        return discordant_interval(lost, gained, n), mcnemar_exact(lost, gained), spread
    spread = math.sqrt(math.fsum(d * d for d in differences) / n)
    if n == 1:
        return None, None, spread
    mean_difference = ClusteredMean(differences, [1] * n)
    (ci95,) = bootstrap_intervals([mean_difference], [math.fsum(differences) / n])
    return ci95, sign_flip_p(differences), spread


def _at_least(column: Floats, threshold: float) -> int:
    """Count of the ``FLIPS`` random-sign sums that are at least ``threshold`` away from 0."""
    words = -(-len(column) // 64)
    stream = np.random.PCG64(_SEED)
    block = max(1, _CELLS // (words * 64))
    total = float(column.sum())
    counted = 0
    for begin in range(0, FLIPS, block):
        count = min(block, FLIPS - begin)
        raw = stream.random_raw(count * words).astype("<u8").view(np.uint8)
        bits = np.unpackbits(raw.reshape(count, -1), axis=1)[:, : len(column)]
        sums = total - 2 * (bits.astype(np.float64) @ column)
        counted += int((np.abs(sums) >= threshold).sum())
    return counted
