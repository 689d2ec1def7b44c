"""Bootstrap confidence intervals against analytical results."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.bootstrap import MOST_CLUSTERS, ClusteredMean, bootstrap_intervals
from shared.analysis.metrics import SampleResult, clusters, summarize
from shared.analysis.statistics import wilson_interval
from shared.statuses import FinalStatus

stats = pytest.importorskip("scipy.stats")


def interval(values, *, bounded=False):
    mean = ClusteredMean(values, [1] * len(values), bounded)
    (found,) = bootstrap_intervals([mean], [math.fsum(values) / len(values)])
    return found


def normal(count, seed=1):
    source = random.Random(seed)
    return [source.gauss(10, 2) for _ in range(count)]


def sample(problem, index, accepted):
    status = FinalStatus.SUCCESS if accepted else FinalStatus.WRONG_ANSWER
    return SampleResult(problem, index, status, accepted, float(accepted), 100, 1.0, 0.1)


def test_it_is_scipys_percentile_bootstrap():
    values = [source**3 for source in normal(60)]
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(3)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert interval(values) == pytest.approx([theirs.low, theirs.high], abs=width / 15)


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
