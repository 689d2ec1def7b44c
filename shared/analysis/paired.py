"""Paired difference of two runs: McNemar's test, permutation test, power, anytime-valid test.

Values are between 0 and 1, one per problem and run: accepted, a share of samples, a pass ratio.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import NormalDist

import numpy as np

from shared.analysis.bootstrap import ClusteredMean, Floats, Ints, bootstrap_intervals, group_rows
from shared.analysis.statistics import Z95, enclosing

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
        clusters: The number of clusters of problems, such as contests, over which the interval is;
            None if each problem counts by itself.
    """

    problems: int
    first: float | None = None
    second: float | None = None
    difference: float | None = None
    ci95: list[float] | None = None
    p_value: float | None = None
    detectable: float | None = None
    clusters: int | None = None


def paired_differences(
    values: Sequence[tuple[Floats, Floats]], clusters: Ints | None = None
) -> list[PairedDifference]:
    """Compare two runs by several values of the same problems.

    If all values are 0 or 1, p is McNemar's and the interval comes from ``discordant_interval``;
    otherwise p is ``sign_flip_ps`` and the interval a bootstrap over problems. If no problem
    differs, resampling shows no spread, and the wider formulas for 0 and 1 are used.

    With ``clusters`` the bootstrap draws clusters, and the interval is the hull of its and the one
    that independent problems have, so clustering never narrows it. The detectable difference grows
    by the square root of the design effect. The test is that of independent problems: it asks
    whether it matters, for these problems, which run is which.

    Args:
        values: Per value the first and the second run's, in the same order of problems.
        clusters: The number of each problem's cluster, from 0 on.
    """
    differences = [second - first for first, second in values]
    if not values or not len(differences[0]):
        return [PairedDifference(0) for _ in values]
    binary = [
        all(((one == 0) | (one == 1)).all() for one in pair) or not difference.any()
        for pair, difference in zip(values, differences, strict=True)
    ]
    apart = _intervals(differences, binary, None)
    hulls = apart
    if clusters is not None:
        together = _intervals(differences, [False] * len(differences), clusters)
        hulls = [_hull(*each) for each in zip(apart, together, strict=True)]
    p_values = _p_values(differences, binary)
    n = len(differences[0])
    return [
        PairedDifference(
            problems=n,
            first=math.fsum(first) / n,
            second=math.fsum(second) / n,
            difference=math.fsum(one) / n,
            ci95=ci95,
            p_value=p_value,
            detectable=detectable_difference(_spread(one, two_valued, clusters), n),
            clusters=None if clusters is None else int(clusters.max()) + 1,
        )
        for (first, second), one, two_valued, ci95, p_value in zip(
            values, differences, binary, hulls, p_values, strict=True
        )
    ]


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


def adjusted_interval(differences: Floats, clusters: Ints | None = None) -> list[float]:
    """95 % confidence interval of a mean difference in closed form, for clusters and any values.

    ``discordant_interval`` adds a problem of +1 and one of -1 to the n problems. Done the same to
    values between -1 and 1 in clusters with the sums S and the sizes m: with c = ΣS / (n + 2) it is
    c ± 1.96 * √(Σ(S - m c)² + (1 - c)² + (1 + c)²) / (n + 2), the clustered standard error of
    Miller 2024, equation 4. For independent values of -1, 0 and 1 the two are the same.
    """
    n = len(differences)
    sums, sizes = _cluster_sums(differences, clusters), _cluster_sizes(n, clusters)
    centre = math.fsum(sums) / (n + 2)
    squares = math.fsum((sums - sizes * centre) ** 2) + (1 - centre) ** 2 + (1 + centre) ** 2
    half = Z95 * math.sqrt(squares) / (n + 2)
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return enclosing(low, high, math.fsum(differences) / n)


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


def _intervals(
    differences: Sequence[Floats], binary: Sequence[bool], clusters: Ints | None
) -> list[list[float] | None]:
    """The interval of each mean; those that are resampled share the draws."""
    n = len(differences[0])
    sizes = _cluster_sizes(n, clusters)
    intervals: list[list[float] | None] = [None] * len(differences)
    resampled = []
    for place, (array, two_valued) in enumerate(zip(differences, binary, strict=True)):
        if two_valued:
            intervals[place] = discordant_interval(
                int((array < 0).sum()), int((array > 0).sum()), n
            )
        elif not array.any():  # in clusters: no spread to resample
            intervals[place] = discordant_interval(0, 0, len(sizes))
        elif len(sizes) > 1:
            resampled.append(place)
    counts = sizes.tolist()
    means = [
        ClusteredMean(_cluster_sums(differences[place], clusters).tolist(), counts)
        for place in resampled
    ]
    drawn = bootstrap_intervals(means, [math.fsum(differences[place]) / n for place in resampled])
    for place, interval in zip(resampled, drawn, strict=True):
        intervals[place] = interval
    return intervals


def _hull(apart: list[float] | None, together: list[float] | None) -> list[float] | None:
    if apart is None or together is None:
        return apart or together
    return [min(apart[0], together[0]), max(apart[1], together[1])]


def _spread(differences: Floats, two_valued: bool, clusters: Ints | None) -> float:
    """Standard deviation of the differences around 0, times the root of the design effect."""
    n = len(differences)
    squares = math.fsum(differences**2)
    variance = squares / n
    if two_valued:
        variance = (int((differences != 0).sum()) + 2) / (n + 2)
    if clusters is None or not squares:
        return math.sqrt(variance)
    effect = math.fsum(_cluster_sums(differences, clusters) ** 2) / squares
    return math.sqrt(variance * max(1.0, effect))


def _cluster_sums(values: Floats, clusters: Ints | None) -> Floats:
    return values if clusters is None else np.bincount(clusters, weights=values).astype(float)


def _cluster_sizes(problems: int, clusters: Ints | None) -> Floats:
    sizes = np.ones(problems) if clusters is None else np.bincount(clusters)
    return sizes.astype(float)


def _p_values(differences: Sequence[Floats], binary: Sequence[bool]) -> list[float | None]:
    """McNemar's p of values that are 0 or 1, else that of sign flips; None of one problem."""
    several = len(differences[0]) > 1
    others = [
        array for array, two_valued in zip(differences, binary, strict=True) if not two_valued
    ]
    flipped = iter(sign_flip_ps(others) if several else [None] * len(others))
    return [
        mcnemar_exact(int((array < 0).sum()), int((array > 0).sum()))
        if two_valued
        else next(flipped)
        for array, two_valued in zip(differences, binary, strict=True)
    ]


def sign_flip_ps(differences: Sequence[Floats]) -> list[float]:
    """Two-sided p of paired permutation tests: the sign of each problem is flipped at random.

    (1 + number of flips with |mean| at least as large) / (1 + ``FLIPS``), for each column of
    differences; all are flipped by the same random signs. For values of 0 and 1 it approximates
    McNemar's test. Source: Fisher 1935, "The design of experiments", section 21; the added 1 for
    the observed data: Phipson & Smyth 2010.
    """
    if not differences:
        return []
    columns = group_rows(np.array(differences).T)
    sums = np.abs(columns.sum(axis=0))
    tolerance = 1e-9 * np.abs(columns).sum(axis=0)
    return [(1 + count) / (1 + FLIPS) for count in _at_least(columns, sums - tolerance)]


def _at_least(columns: Floats, thresholds: Floats) -> list[int]:
    """Per column, count the ``FLIPS`` random-sign sums at least its threshold away from 0."""
    words = -(-len(columns) // 64)
    stream = np.random.PCG64(_SEED)
    block = max(1, _CELLS // (words * 64))
    totals = columns.sum(axis=0)
    counted = np.zeros(columns.shape[1], dtype=np.int64)
    for begin in range(0, FLIPS, block):
        count = min(block, FLIPS - begin)
        raw = stream.random_raw(count * words).astype("<u8").view(np.uint8)
        bits = np.unpackbits(raw.reshape(count, -1), axis=1)[:, : len(columns)]
        sums = totals - 2 * (bits.astype(np.float64) @ columns)
        counted += (np.abs(sums) >= thresholds).sum(axis=0)
    return [int(count) for count in counted]


# Clusters of problems: the contest that a problem is from, as far as its id tells. Problems of one
# contest have one set of authors and one theme, and a model may know all of its editorials or none,
# so their values are not independent (Miller 2024, "Adding error bars to evals", section on
# clustered questions).


_CODEFORCES = re.compile(r"(\d{1,5})_[A-Z]\d?(?![0-9A-Za-z_])")
_ATCODER_TITLE = re.compile(r"p\d{5} (.{1,200}?) - ")
_ATCODER_NUMBER = re.compile(r"((?:abc|arc|agc)\d{3})_[a-z]\d?(?![0-9A-Za-z_])")


def contest(problem_id: str) -> str | None:
    """The contest of a problem; None if the id does not tell.

    Known are

    - Codeforces: ``1575_A. Another Sorting Problem`` (CodeContests), ``1873_A`` (LiveCodeBench):
      the number before the letter;
    - AtCoder: ``p02732 AtCoder Beginner Contest 159 - Banned K`` (CodeContests): the contest's
      title; ``abc301_a`` (LiveCodeBench): what is before the letter.

    Every other problem (Aizu, CodeChef, HackerEarth, LeetCode, HumanEval, MBPP) is a cluster of its
    own: nothing that a run keeps tells its contest.
    """
    for place, pattern in (
        ("codeforces", _CODEFORCES),
        ("atcoder", _ATCODER_TITLE),
        ("atcoder", _ATCODER_NUMBER),
    ):
        if match := pattern.match(problem_id):
            return f"{place} {match[1]}"
    return None


def contest_clusters(problem_ids: Sequence[str]) -> Ints | None:
    """Number the clusters of problems from 0, in the order of their first problems.

    Returns:
        The cluster of each problem; None if no two problems share one.
    """
    numbers: dict[tuple[str | None, str], int] = {}
    keys = ((contest(problem_id), problem_id) for problem_id in problem_ids)
    clusters = [
        numbers.setdefault((None, problem_id) if held is None else (held, ""), len(numbers))
        for held, problem_id in keys
    ]
    return np.array(clusters, dtype=np.int64) if len(numbers) < len(clusters) else None


# Anytime-valid test and confidence sequence of a mean: a mixture e-process, by betting.
#
# A bettor starts with 1 and stakes the fraction f of the capital on each value x in [-1, 1] against
# the hypothesis that the mean is at most m. With y = (1 + x) / 2 and μ = (1 + m) / 2 a value
# multiplies the capital by 1 - f + f y / μ, whose expectation is at most 1. So the mean capital
# over a uniform mixture of f in (0, 1) is an e-process. By Ville's inequality it ever reaches 1 / α
# with a probability of at most α, however often it is looked at.
#
# For pairs (gained 1, lost -1, same 0) and m = 0 it is the likelihood ratio of the share of gains
# among the discordant pairs, with a uniform prior on (1/2, 1), against 1/2. A margin or values
# between -1 and 1 need no other test. Sources: Ville 1939; Robbins 1970, "Statistical methods
# related to the law of the iterated logarithm"; Waudby-Smith & Ramdas 2024, "Estimating means of
# bounded random variables by betting".

ALPHA = 0.05
"""Probability that an interval ever excludes the true mean, in equal parts on both sides."""
_FRACTIONS = (np.arange(100) + 0.5) / 100
_REJECTED = np.log(2 / ALPHA)
_HALVINGS = 40
_EDGE = 1e-9  # no capital is defined against a mean of -1


@dataclass(frozen=True, slots=True)
class SequentialMean:
    """A mean when a limit was decided, or of all values.

    Attributes:
        problems: The number of values until then.
        mean: Their mean; None without a value.
        low: Lower end of the confidence sequence at this time.
        high: Its upper end.
    """

    problems: int
    mean: float | None
    low: float
    high: float


def order_key(seed: int, dataset: str, problem_id: str) -> bytes:
    """Sort key of a problem: an order that depends on the seed and the problem's name alone.

    Answers may not decide the order. Slow programs end late, so the order of verdicts is no random
    one.
    """
    return sha256(f"{seed}\n{dataset}\n{problem_id}".encode()).digest()


def log_capital(values: Floats, mean: float) -> Floats:
    """Log of the e-process against "the mean is at most ``mean``", after each value.

    Args:
        values: In [-1, 1], in the order of their observation: n.
        mean: In (-1, 1).

    Returns:
        n numbers.
    """
    gains = (1 + values[:, None]) / (1 + mean)
    # A value of -1 loses the staked fraction, never everything.
    logs = np.cumsum(np.log1p(_FRACTIONS * (gains - 1)), axis=0)
    return np.asarray(np.logaddexp.reduce(logs, axis=1) - np.log(len(_FRACTIONS)))


def sequential_mean(
    low_values: Floats, high_values: Floats, limit: float, first: int = 1
) -> SequentialMean:
    """Look after each value whether the mean is shown to be at least, or below, ``limit``.

    Args:
        low_values: In [-1, 1], in the order of their observation. They must show "at least".
        high_values: The same, or the larger ones that unknown parts of the values permit; they must
            show "below".
        limit: In [-1, 1].
        first: The number of values before which nothing is decided.
    """
    limit = min(max(limit, -1 + _EDGE), 1 - _EDGE)
    crossed = (log_capital(low_values, limit) >= _REJECTED) | (
        log_capital(-high_values, -limit) >= _REJECTED
    )
    places = np.flatnonzero(crossed[first - 1 :])
    count = first + int(places[0]) if len(places) else len(low_values)
    if not count:
        return SequentialMean(0, None, -1.0, 1.0)
    low, high = _lower_end(low_values[:count]), -_lower_end(-high_values[:count])
    return SequentialMean(count, float(low_values[:count].mean()), low, high)


def _lower_end(values: Floats) -> float:
    """The largest mean that the values reject; the capital falls with the mean."""
    kinds, counts = np.unique(values, return_counts=True)
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gains = (1 + kinds[:, None]) / (1 + middle)
        logs = counts @ np.log1p(_FRACTIONS * (gains - 1))
        if np.logaddexp.reduce(logs) - np.log(len(_FRACTIONS)) >= _REJECTED:
            low = middle
        else:
            high = middle
    return low
