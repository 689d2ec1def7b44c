"""Metrics per slice of a data set: difficulty, tag, number of tests, length of the prompt."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from shared.analysis.metrics import (
    SampleResult,
    accepted_at_1,
    by_problem,
    judged_only,
    pass_ratio_means,
)
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
    return {
        dimension: {
            bucket: _metrics(samples)
            for bucket, samples in _buckets(results, facts, buckets_of).items()
        }
        for dimension, buckets_of in DIMENSIONS.items()
    }


def _buckets(
    results: Sequence[SampleResult],
    facts: Mapping[str, ProblemFacts],
    buckets_of: Callable[[ProblemFacts], Sequence[str]],
) -> dict[str, list[SampleResult]]:
    found: dict[str, list[SampleResult]] = {}
    for problem_id, samples in by_problem(results).items():
        known = facts.get(problem_id)
        for bucket in buckets_of(known) if known else [UNKNOWN]:
            found.setdefault(bucket, []).extend(samples)
    return {bucket: found[bucket] for bucket in sorted(found, key=bucket_order)}


def bucket_order(bucket: str) -> tuple[int, int, str]:
    """Known buckets in their natural order, then others by name, then untagged and unknown."""
    if bucket in _LAST:
        return 2, _LAST.index(bucket), bucket
    lower = bucket.lower()
    return (0, _FIRST.index(lower), bucket) if lower in _FIRST else (1, 0, bucket)


def _metrics(samples: Sequence[SampleResult]) -> Metrics:
    judged = judged_only(samples)
    share, interval = accepted_at_1(judged)
    return {
        "n": len(judged),
        "problems": len(by_problem(judged)),
        "accepted_at_1": share,
        "accepted_at_1_ci95": interval,
        **pass_ratio_means(judged),
        "api_errors": len(samples) - len(judged),
    }
