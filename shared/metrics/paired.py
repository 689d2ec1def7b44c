"""Two runs over the same problems: the difference, how sure it is, and what could have been seen.

Values are between 0 and 1, one per problem and run: accepted, a share of samples, a pass ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from shared.metrics.bootstrap import ClusteredMean, Floats, bootstrap_intervals, fold
from shared.metrics.statistics import Z95, enclosing, mean

Z_POWER = NormalDist().inv_cdf(0.8)
FLIPS = 9999
_SEED = 20210708
_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The second run against the first, over the problems that both have.

    Attributes:
        problems: Their number; without any, all else is None.
        first: Mean of the first run.
        second: Mean of the second.
        difference: second - first.
        ci95: Interval of the difference at 95 %.
        p_value: Two-sided, that runs which are equally good differ by as much.
        detectable: The smallest difference that had a chance of 80 % to be found.
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

    Where all values are 0 or 1, p is McNemar's and the interval that of ``discordant_interval``;
    else p is ``sign_flip_p`` and the interval a bootstrap over problems. Where no problem differs,
    resampling has nothing to show, and the formulas for 0 and 1, which are wider, hold.

    Args:
        first: Problem id to value.
        second: The same problems.

    Raises:
        ValueError: The problems are not the same.
    """
    if first.keys() != second.keys():
        raise ValueError("paired runs have the same problems")
    names = sorted(first)
    if not names:
        return PairedDifference(0)
    differences = [second[name] - first[name] for name in names]
    ci95, p_value, spread = _judge(differences, {*first.values(), *second.values()} <= {0, 1})
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
    """Two-sided exact p of McNemar's test: a discordant pair falls either way with chance 1/2.

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
    """Interval at 95 % for the difference of two paired shares, from the discordant pairs.

    With p = (gained + 1) / (n + 2), q = (lost + 1) / (n + 2) and n pairs it is
    p - q ± 1.96 * √((p + q - (p - q)²) / (n + 2)). Source: Bonett & Price 2012, "Adjusted Wald
    confidence interval for a difference of binomial proportions based on paired data". Unlike
    a bootstrap it has a width where no pair is discordant.
    """
    p, q = (gained + 1) / (pairs + 2), (lost + 1) / (pairs + 2)
    half = Z95 * math.sqrt((p + q - (p - q) ** 2) / (pairs + 2))
    low, high = max(-1.0, p - q - half), min(1.0, p - q + half)
    return enclosing(low, high, (gained - lost) / pairs)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p that which run is which does not matter: signs are flipped per problem.

    (1 + number of flips with |mean| at least as large) / (1 + ``FLIPS``). For values of 0 and 1 it
    is McNemar's test, found by chance. Source: Fisher 1935, "The design of experiments",
    section 21; the 1 for the data as they are: Phipson & Smyth 2010.
    """
    column = fold(np.array([differences]).T)[:, 0]
    found = abs(float(column.sum()))
    tolerance = 1e-9 * float(np.abs(column).sum())
    return (1 + _at_least(column, found - tolerance)) / (1 + FLIPS)


def detectable_difference(spread: float, problems: int) -> float:
    """The difference that a test at 5 % finds with a chance (power) of 80 %, at most 1.

    (1.96 + 0.84) * spread / √n. Source: Miller 2024, "Adding error bars to evals", section on
    power; for shares it is the first term of Connor 1987, "Sample size for testing differences
    in proportions for the paired-sample design".

    Args:
        spread: Standard deviation of a problem's difference, if there is none in truth.
        problems: n.
    """
    return min(1.0, (Z95 + Z_POWER) * spread / math.sqrt(problems))


def _judge(
    differences: Sequence[float], binary: bool
) -> tuple[list[float] | None, float | None, float]:
    """Interval, p and spread."""
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
    """How many of ``FLIPS`` sums with random signs are as far from 0 as ``threshold``."""
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
