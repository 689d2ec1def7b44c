"""Slices of a data set, their metrics and the differences of two runs in them.

The dimensions are difficulty, tag, number of tests, and length of the prompt.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.analysis.bootstrap import Floats, Ints
from shared.analysis.metrics import (
    SampleResult,
    by_problem,
    judged_only,
    pass_ratio_means,
    share_of,
)
from shared.analysis.paired import adjusted_interval
from shared.analysis.statistics import Metrics
from shared.schemas import ProblemFacts

UNKNOWN = "unknown"
UNTAGGED = "untagged"
# The largest number in each bucket except the last.
_TESTS = (1, 5, 20, 100)
_TEST_BUCKETS = ("1", "2-5", "6-20", "21-100", ">100")
_CHARACTERS = (499, 999, 1999, 3999)
_CHARACTER_BUCKETS = ("<500", "500-999", "1000-1999", "2000-3999", ">=4000")
_DIFFICULTIES = ("easy", "medium", "hard")
_FIRST = (*_DIFFICULTIES, *_TEST_BUCKETS, *_CHARACTER_BUCKETS)
_LAST = (UNTAGGED, UNKNOWN)
# Buckets with the fewest problems are left out beyond these: each data set may have any tags.
_MOST_BUCKETS = 60


def _bucket(value: int | None, bounds: Sequence[int], names: Sequence[str]) -> str:
    return UNKNOWN if value is None else names[bisect_left(bounds, value)]


# The buckets of a problem in each dimension; with several tags it is in several.
DIMENSIONS: dict[str, Callable[[ProblemFacts], Sequence[str]]] = {
    "difficulty": lambda facts: [facts.difficulty or UNKNOWN],
    "tag": lambda facts: sorted(set(facts.tags)) or [UNTAGGED],
    "tests": lambda facts: [_bucket(facts.num_tests, _TESTS, _TEST_BUCKETS)],
    "prompt_length": lambda facts: [_bucket(facts.prompt_length, _CHARACTERS, _CHARACTER_BUCKETS)],
}


def slice_summaries(
    results: Sequence[SampleResult], facts: Mapping[str, ProblemFacts]
) -> dict[str, dict[str, Metrics]]:
    """Compute ``{dimension: {bucket: {metric: value}}}`` of one data set.

    A problem is in one bucket per dimension, and in one bucket for each of its tags; problems
    missing from ``facts`` are in ``unknown``. Empty buckets are left out.

    ``n`` is the number of judged samples, over which the metrics are computed, ``problems`` the
    number of their problems (the n of the interval), ``api_errors`` that of samples without a
    verdict.

    Args:
        results: The samples of one data set.
        facts: Problem id to the problem's properties.
    """
    problems = by_problem(results)
    groups = list(problems.values())
    return {
        dimension: {
            bucket: _metrics([sample for place in parts[bucket] for sample in groups[place]])
            for bucket in sorted(parts, key=bucket_order)
        }
        for dimension, parts in _buckets([facts.get(problem) for problem in problems]).items()
    }


def _buckets(facts: Sequence[ProblemFacts | None]) -> dict[str, dict[str, list[int]]]:
    """Places of the problems by dimension and bucket; those without facts are unknown."""
    buckets: dict[str, dict[str, list[int]]] = {name: {} for name in DIMENSIONS}
    alike: dict[ProblemFacts | None, list[int]] = {}  # problems often have the same facts
    for place, problem in enumerate(facts):
        alike.setdefault(problem, []).append(place)
    for problem, places in alike.items():
        for dimension, buckets_of in DIMENSIONS.items():
            for bucket in buckets_of(problem) if problem else [UNKNOWN]:
                buckets[dimension].setdefault(bucket, []).extend(places)
    return buckets


def bucket_order(bucket: str) -> tuple[int, int, str]:
    """Known buckets in their natural order, then others by name, then untagged and unknown."""
    if bucket in _LAST:
        return 2, _LAST.index(bucket), bucket
    lower = bucket.lower()
    return (0, _FIRST.index(lower), bucket) if lower in _FIRST else (1, 0, bucket)


def _metrics(samples: Sequence[SampleResult]) -> Metrics:
    judged = judged_only(samples)
    return {
        "n": len(judged),
        "problems": len(by_problem(judged)),
        **share_of("accepted_at_1", judged),
        **pass_ratio_means(judged),
        "api_errors": len(samples) - len(judged),
    }


# Differences of two runs


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
    """Places of the problems by dimension and bucket, the largest 60 buckets of each dimension.

    A problem is in one bucket per dimension, and in one bucket for each of its tags.
    """
    return {
        dimension: {
            bucket: np.sort(np.array(parts[bucket], dtype=np.int64))
            for bucket in sorted(
                sorted(parts, key=lambda name: (-len(parts[name]), name))[:_MOST_BUCKETS],
                key=bucket_order,
            )
        }
        for dimension, parts in _buckets(facts).items()
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
            bucket: _difference(first[places], second[places], clusters, places)
            for bucket, places in parts.items()
        }
        for dimension, parts in buckets.items()
    }


def _difference(
    first: Floats, second: Floats, clusters: Ints | None, places: Ints
) -> SliceDifference:
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
