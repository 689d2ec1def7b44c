"""Percentile, Wilson interval and pass@k."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.statistics import pass_at_k, percentile, sample_sizes, wilson_interval

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
    found = percentile(values, percent)
    assert min(values) - 1e-3 <= found <= max(values) + 1e-3


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
    draws = list(combinations(range(n), k))
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
