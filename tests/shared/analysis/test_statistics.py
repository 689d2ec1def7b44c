"""Percentile, Wilson interval and pass@k."""

import math
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


@pytest.mark.parametrize(
    ("share", "n", "expected"),
    [(0.5, 100, [0.403832, 0.596168]), (0.0, 10, [0.0, 0.277533]), (1.0, 10, [0.722467, 1.0]),
     (0.1, 50, [0.043476, 0.213602])],
)  # fmt: skip
def test_wilson_interval(share, n, expected):
    assert wilson_interval(share, n) == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_is_scipys(case):
    successes, n = case
    theirs = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson_interval(successes / n, n) == pytest.approx([theirs.low, theirs.high], abs=1e-9)


def test_no_trials_no_interval():
    assert wilson_interval(None, 5) is None
    assert wilson_interval(0.5, 0) is None


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_pass_at_k_is_the_share_of_draws_with_an_accepted_sample(case):
    n, accepted, k = case
    draws = list(combinations(range(n), k))
    hits = sum(any(i < accepted for i in draw) for draw in draws)
    assert pass_at_k(n, accepted, k) == pytest.approx(hits / len(draws))


@given(
    st.integers(1, 300).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
    )
)
def test_pass_at_k_is_the_product_form_of_the_published_estimator(case):
    n, accepted, k = case
    product = math.prod(1 - k / i for i in range(n - accepted + 1, n + 1))
    expected = 1.0 if n - accepted < k else 1 - product
    assert pass_at_k(n, accepted, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "accepted", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_is_not_defined(n, accepted, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, accepted, k)


def test_sample_sizes():
    assert [sample_sizes(n) for n in (0, 1, 2, 3, 8, 10)] == [
        [], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 10]
    ]  # fmt: skip
