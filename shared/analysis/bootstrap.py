"""Cluster bootstrap: confidence intervals of means by resampling problems.

Problems are the clusters because samples of one problem are not independent.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.analysis.statistics import enclosing, percentile, ratio, wilson_interval

RESAMPLES = 2000
# Above this many problems, random groups of problems are resampled instead.
MOST_CLUSTERS = 4096
_SEED = 20210707
_CELLS = 1_000_000  # per block of resamples: bounds the memory
_DIGITS = 6

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean, Σ totals / Σ counts, with the share of each problem in it.

    Attributes:
        totals: One sum per problem; all means of a data set have the problems in the same order.
        counts: The number of values in each sum; 0 where the problem has none.
        bounded: Whether all values lie between 0 and 1.
    """

    totals: Sequence[float]
    counts: Sequence[int]
    bounded: bool = False

    @property
    def value(self) -> float | None:
        """The mean; None without any value."""
        return ratio(math.fsum(self.totals), sum(self.counts))


def bootstrap_intervals(
    means: Sequence[ClusteredMean], values: Sequence[float | None]
) -> list[list[float] | None]:
    """Percentile bootstrap at 95 %, clustered by problem, for means over the same problems.

    Problems are drawn with replacement ``RESAMPLES`` times. The interval runs from the 2.5th to
    the 97.5th percentile of the resampled means, rounded to six significant digits (which hides
    the machine's order of addition) and widened where rounding excluded the value itself. Source:
    Efron & Tibshirani 1993, "An introduction to the bootstrap", chapters 8 and 13. With more than
    ``MOST_CLUSTERS`` problems, random groups of problems are resampled (Wolter 2007,
    "Introduction to variance estimation", chapter 2).

    Where only one problem has values, or all values are equal, resampling shows no spread. A
    bounded mean then gets the Wilson interval of a share, whose variance is at least as large;
    any other mean gets None (one problem) or an interval of width zero.

    Args:
        means: All over the same number of problems.
        values: The means themselves, in the same order.
    """
    drawn = _resample(means) if means and means[0].totals else [[] for _ in means]
    return [
        _interval(mean, value, resampled)
        for mean, value, resampled in zip(means, values, drawn, strict=True)
    ]


def rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def group_rows(columns: Floats) -> Floats:
    """Sum rows into ``MOST_CLUSTERS`` random groups; unchanged if there are no more rows."""
    if len(columns) <= MOST_CLUSTERS:
        return columns
    order = np.argsort(np.random.PCG64(_SEED).random_raw(len(columns)), kind="stable")
    groups = np.zeros((MOST_CLUSTERS, columns.shape[1]))
    np.add.at(groups, np.arange(len(columns)) % MOST_CLUSTERS, columns[order])
    return groups


def _draws(columns: Floats) -> Iterator[Floats]:
    """Sums of each column over rows drawn with replacement, a block of resamples at a time.

    Rows are chosen by the raw stream of PCG64, which numpy keeps stable, and integer arithmetic,
    so they are the same with every numpy version on every machine.
    """
    rows = len(columns)
    stream = np.random.PCG64(_SEED)
    block = max(1, _CELLS // rows)
    for begin in range(0, RESAMPLES, block):
        count = min(block, RESAMPLES - begin)
        raw = stream.random_raw(count * rows) >> np.uint64(32)
        chosen = ((raw * np.uint64(rows)) >> np.uint64(32)).astype(np.int64).reshape(count, rows)
        chosen += (np.arange(count) * rows)[:, None]
        times = np.bincount(chosen.ravel(), minlength=count * rows).reshape(count, rows)
        yield times.astype(np.float64) @ columns


def _resample(means: Sequence[ClusteredMean]) -> list[list[float]]:
    """The resampled values of each mean; resamples without any value of it are skipped."""
    columns = [column for mean in means for column in (mean.totals, mean.counts)]
    sums = np.concatenate(list(_draws(group_rows(np.array(columns, dtype=np.float64).T))))
    totals, counts = sums[:, 0::2], sums[:, 1::2]
    return [
        (totals[:, i][counts[:, i] > 0] / counts[:, i][counts[:, i] > 0]).tolist()
        for i in range(len(means))
    ]


def _interval(
    mean: ClusteredMean, value: float | None, resampled: Sequence[float]
) -> list[float] | None:
    pairs = [(t, n) for t, n in zip(mean.totals, mean.counts, strict=True) if n]
    if value is None or not pairs:
        return None
    if mean.bounded and len({rounded(total / count) for total, count in pairs}) == 1:
        return wilson_interval(value, len(pairs))
    if len(pairs) == 1:
        return None
    low, high = percentile(resampled, 2.5), percentile(resampled, 97.5)
    return None if low is None or high is None else enclosing(rounded(low), rounded(high), value)
