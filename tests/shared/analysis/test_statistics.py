"""Percentile, Wilson interval, pass@k, bootstrap, and corrected scores."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.bootstrap import MOST_CLUSTERS, ClusteredMean, bootstrap_intervals
from shared.analysis.metrics import SampleResult, clusters, summarize
from shared.analysis.statistics import (
    MeanRate,
    SuiteRates,
    corrected_share,
    pass_at_k,
    percentile,
    sample_sizes,
    wilson_interval,
)
from shared.statuses import FinalStatus

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([7], 95, 7), ([1, 2], 50, 1.5), ([3, 1, 2], 50, 2), ([1, 2, 3, 4], 90, 3.7),
     ([1, 2, 3, 4, 5], 0, 1), ([1, 2, 3, 4, 5], 100, 5), ([10, 20, 30, 40, 50], 95, 48)],
)  # fmt: skip
def test_percentile(values, percent, expected):
    assert percentile(values, percent) == pytest.approx(expected)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_between_the_extremes(values, percent):
    value = percentile(values, percent)
    assert min(values) - 1e-3 <= value <= max(values) + 1e-3


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_is_scipys(case):
    successes, n = case
    theirs = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson_interval(successes / n, n) == pytest.approx([theirs.low, theirs.high], abs=1e-9)


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_pass_at_k_is_the_share_of_draws_with_an_accepted_sample(case):
    n, accepted, k = case
    draws = list(itertools.combinations(range(n), k))
    hits = sum(any(i < accepted for i in draw) for draw in draws)
    assert pass_at_k(n, accepted, k) == pytest.approx(hits / len(draws))


@pytest.mark.parametrize(("n", "accepted", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_is_not_defined(n, accepted, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, accepted, k)


def test_sample_sizes():
    assert [sample_sizes(n) for n in (0, 1, 2, 3, 8, 10)] == [
        [], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 10]
    ]  # fmt: skip


# Bootstrap intervals


def interval(values, *, bounded=False):
    mean = ClusteredMean(values, [1] * len(values), bounded)
    (bounds,) = bootstrap_intervals([mean], [math.fsum(values) / len(values)])
    return bounds


def normal(count, seed=1):
    source = random.Random(seed)
    return [source.gauss(10, 2) for _ in range(count)]


def sample(problem, index, accepted):
    status = FinalStatus.SUCCESS if accepted else FinalStatus.WRONG_ANSWER
    return SampleResult(problem, index, status, accepted, float(accepted), 100, 1.0, 0.1)


def test_samples_of_a_problem_stay_together():
    apart = [sample(str(i), 0, i % 2) for i in range(100)]
    together = [sample(str(i // 10), i % 10, (i // 10) % 2) for i in range(100)]
    low, high = summarize(apart, None)["pass_ratio_mean_ci95"]
    wide_low, wide_high = summarize(together, None)["pass_ratio_mean_ci95"]
    # Ten times fewer independent values: √10 times the width.
    assert (wide_high - wide_low) / (high - low) == pytest.approx(math.sqrt(10), rel=0.12)


def test_the_numbers_are_the_same_everywhere():
    assert interval([0.1, 0.2, 0.4, 0.8, 1.6]) == [0.2195, 1.14]
    assert interval(normal(2 * MOST_CLUSTERS)) == [9.95744, 10.0437]


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0, 1.0], [0.0, 0.0], [0.25, 0.25]])
def test_without_spread_a_bounded_mean_has_wilsons_interval(values):
    assert interval(values, bounded=True) == wilson_interval(values[0], len(values))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.randoms())
def test_it_holds_the_mean_lies_within_the_values_and_knows_no_order(values, source):
    results = [
        SampleResult(str(i), 0, FinalStatus.WRONG_ANSWER, False, value, 1, 1.0, 1.0)
        for i, value in enumerate(values)
    ]

    def found(ordered):
        totals = [samples[0].pass_ratio for samples in clusters(ordered)]
        mean = ClusteredMean(totals, [1] * len(totals))
        return bootstrap_intervals([mean], [math.fsum(values) / len(values)])[0]

    ours = found(results)
    assert found(source.sample(results, len(results))) == ours
    if ours is not None:
        low, high = ours
        assert low <= math.fsum(values) / len(values) <= high
        assert min(values) <= low + 1e-5
        assert high - 1e-5 <= max(values)


# Corrected scores: the formula, its limits, and how often the intervals cover

share = st.floats(0, 1)
rate = st.builds(lambda r, n: MeanRate(r, n, float(n)), st.floats(0.7, 1), st.integers(1, 2000))
rates = st.builds(SuiteRates, rate, rate)


@given(share, st.integers(1, 5000), rates)
def test_the_formula_inverts_what_the_tests_do(right, problems, found):
    accepted = right * found.positive.rate + (1 - right) * (1 - found.negative.rate)
    corrected = corrected_share(accepted, problems, found)
    if not found.usable:
        assert corrected is None
        return
    assert corrected.value == pytest.approx(right, abs=1e-9)
    low, high = corrected.ci95
    assert 0 <= low <= corrected.value <= high <= 1


def test_refused_where_the_tests_say_too_little():
    for negative, positive, usable in ((0.7, 0.7, True), (0.7, 0.69, False), (0.4, 0.9, False)):
        found = SuiteRates(MeanRate(negative, 9, 90.0), MeanRate(positive, 9, 90.0))
        assert found.usable is usable
        assert (corrected_share(0.5, 100, found) is not None) is usable


def test_the_effective_size_is_that_of_independent_programs():
    chance = random.Random(4)
    independent = [chance.random() < 0.8 for _ in range(4000)]
    assert MeanRate.of(list(map(float, independent))).effective == pytest.approx(4000, rel=0.01)
    of_ten = [sum(chance.random() < 0.8 for _ in range(10)) / 10 for _ in range(4000)]
    assert MeanRate.of(of_ten).effective == pytest.approx(40000, rel=0.1)
    assert MeanRate.of([1.0] * 7).effective == 7
    assert MeanRate.of([]) is None


def coverage(score, negative, positive, problems, times, seed):
    """Share of simulations whose interval contains the true score.

    Each problem has ten wrong and three right labelled programs and one answer; ``negative`` and
    ``positive`` are the true rates of the tests.
    """
    chance = np.random.default_rng(seed)
    covered = 0
    for _ in range(times):
        right = chance.random(problems) < score
        accepted = chance.random(problems) < np.where(right, positive, 1 - negative)
        shares = (
            chance.binomial(10, negative, problems) / 10,
            chance.binomial(3, positive, problems) / 3,
        )
        q0, q1 = (MeanRate.of(each.tolist()) for each in shares)
        corrected = corrected_share(float(accepted.mean()), problems, SuiteRates(q0, q1))
        covered += corrected is not None and corrected.ci95[0] <= score <= corrected.ci95[1]
    return covered / times


def test_intervals_cover():
    share = coverage(score=0.5, negative=0.8, positive=0.9, problems=164, times=1000, seed=1)
    assert 0.93 <= share <= 0.98


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_intervals_cover_over_the_grid():
    for problems in (164, 1000):
        grid = itertools.product((0.2, 0.5, 0.8), (0.8, 0.95, 1.0), (0.7, 0.9, 1.0))
        for score, negative, positive in grid:
            case = (problems, score, negative, positive)
            share = coverage(score, negative, positive, problems, times=4000, seed=1)
            assert 0.935 <= share <= 0.97, case
