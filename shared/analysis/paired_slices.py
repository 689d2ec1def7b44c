"""Paired difference per slice of a data set: difficulty, tag, tests, prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shared.analysis.bootstrap import Floats
from shared.analysis.contests import Ints
from shared.analysis.paired import adjusted_interval
from shared.analysis.slices import DIMENSIONS, bucket_order
from shared.schemas import ProblemFacts

# Buckets with the fewest problems are left out beyond these: each data set may have any tags.
_MOST_BUCKETS = 60


@dataclass(frozen=True, slots=True)
class SliceDifference:
    """accepted@1 of the second run minus the first's over a part of the problems.

    ``ci95`` is :func:`adjusted_interval`: a slice is too small to resample. ``improved`` and
    ``worsened`` count problems.
    """

    problems: int
    first: float
    second: float
    difference: float
    ci95: list[float]
    improved: int
    worsened: int


def problem_buckets(facts: Sequence[ProblemFacts]) -> dict[str, dict[str, Ints]]:
    """Places of the problems by dimension and bucket.

    A problem is in one bucket per dimension, and in one bucket for each of its tags.
    """
    buckets: dict[str, dict[str, list[int]]] = {name: {} for name in DIMENSIONS}
    alike: dict[ProblemFacts, list[int]] = {}  # problems often have the same facts
    for place, each in enumerate(facts):
        alike.setdefault(each, []).append(place)
    for each, places in alike.items():
        for dimension, buckets_of in DIMENSIONS.items():
            for bucket in buckets_of(each):
                buckets[dimension].setdefault(bucket, []).extend(places)
    return {
        dimension: {
            bucket: np.sort(np.array(parts[bucket], dtype=np.int64))
            for bucket in sorted(_largest(parts), key=bucket_order)
        }
        for dimension, parts in buckets.items()
    }


def slice_differences(
    buckets: dict[str, dict[str, Ints]], first: Floats, second: Floats, clusters: Ints | None
) -> dict[str, dict[str, SliceDifference]]:
    """Compare two runs in each bucket.

    Args:
        buckets: Places of problems by dimension and bucket.
        first: accepted@1 of each problem in the first run.
        second: The same in the second run.
        clusters: The cluster of each problem.
    """
    return {
        dimension: {
            bucket: _slice(first[places], second[places], clusters, places)
            for bucket, places in found.items()
        }
        for dimension, found in buckets.items()
    }


def _slice(first: Floats, second: Floats, clusters: Ints | None, places: Ints) -> SliceDifference:
    differences, n = second - first, len(places)
    inside = None if clusters is None else np.unique(clusters[places], return_inverse=True)[1]
    return SliceDifference(
        problems=n,
        first=math.fsum(first) / n,
        second=math.fsum(second) / n,
        difference=math.fsum(differences) / n,
        ci95=adjusted_interval(differences, inside),
        improved=int((differences > 0).sum()),
        worsened=int((differences < 0).sum()),
    )


def _largest(buckets: dict[str, list[int]]) -> list[str]:
    return sorted(buckets, key=lambda bucket: (-len(buckets[bucket]), bucket))[:_MOST_BUCKETS]
