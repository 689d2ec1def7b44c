"""Clusters of problems, and paired statistics over them: scipy, closed forms, invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.analysis.bootstrap import RESAMPLES
from shared.analysis.paired import (
    adjusted_interval,
    contest,
    discordant_interval,
    paired_differences,
)

stats = pytest.importorskip("scipy.stats")

shares = st.integers(0, 4).map(lambda number: number / 4)


@pytest.mark.parametrize(
    ("problem_id", "expected"),
    [
        ("1575_A. Another Sorting Problem", "codeforces 1575"),
        ("1873_G", "codeforces 1873"),
        ("p02732 AtCoder Beginner Contest 159 - Banned K", "atcoder AtCoder Beginner Contest 159"),
        ("arc160_f2", "atcoder arc160"),
        ("p00001 List of Top 3 Hills", None),
        ("HumanEval_12_A", None),
        ("12_and", None),
        ("12_AB", None),
        ("", None),
    ],
)
def test_the_contest_that_an_id_tells(problem_id, expected):
    assert contest(problem_id) == expected


class _OurDraws(np.random.Generator):
    """The draws of our bootstrap, for scipy's."""

    def integers(self, low, high=None, size=None, **_ignored):
        count, rows = size if isinstance(size, tuple) else (1, size)
        raw = self.bit_generator.random_raw(count * rows) >> np.uint64(32)
        drawn = ((raw * np.uint64(high or low)) >> np.uint64(32)).astype(np.int64)
        return drawn.reshape(size)


def scipys(sums, sizes):
    """scipy's percentile bootstrap over clusters with the same draws, rounded as ours."""
    found = stats.bootstrap(
        (sums, sizes),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=RESAMPLES,
        rng=_OurDraws(np.random.PCG64(20210707)),
    ).confidence_interval
    return [float(f"{end:.6g}") for end in (found.low, found.high)]


def clustered(seed, sizes=(4, 4, 3, 5, 1, 1, 6, 2)):
    source = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    effect = source.normal(0, 0.3, len(sizes))[clusters]
    values = np.clip(np.round(0.5 + effect + source.normal(0, 0.2, len(clusters)), 2), 0, 1)
    return np.full(len(clusters), 0.5), values, clusters


def test_the_interval_is_scipys_over_clusters_where_that_is_the_wider():
    first, second, clusters = clustered(1)
    (apart,) = paired_differences([(first, second)])
    (found,) = paired_differences([(first, second)], clusters)
    sums = np.bincount(clusters, weights=second - first)
    theirs = scipys(sums, np.bincount(clusters).astype(float))
    alone = scipys(second - first, np.ones(len(first)))
    assert apart.ci95 == alone
    assert found.ci95 == [min(theirs[0], alone[0]), max(theirs[1], alone[1])]
    assert found.ci95[1] - found.ci95[0] > 1.3 * (apart.ci95[1] - apart.ci95[0])
    assert found.detectable > apart.detectable
    assert (found.clusters, apart.clusters) == (8, None)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(shares, shares, st.integers(0, 3)), min_size=1, max_size=20))
def test_clustering_never_narrows_and_changes_nothing_else(values):
    first, second = (np.array([one[side] for one in values]) for side in (0, 1))
    clusters = np.unique([one[2] for one in values], return_inverse=True)[1]
    (apart,) = paired_differences([(first, second)])
    (found,) = paired_differences([(first, second)], clusters)
    assert (found.first, found.second, found.difference) == (
        apart.first, apart.second, apart.difference
    )  # fmt: skip
    assert found.p_value == apart.p_value
    assert found.detectable >= apart.detectable - 1e-12
    if apart.ci95:
        assert found.ci95[0] <= apart.ci95[0] <= apart.ci95[1] <= found.ci95[1]
        assert found.ci95[0] <= found.difference <= found.ci95[1]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_closed_form_is_that_of_discordant_pairs(lost, gained, rest):
    differences = np.array([-1.0] * lost + [1.0] * gained + [0.0] * rest)
    if len(differences):
        expected = discordant_interval(lost, gained, len(differences))
        assert adjusted_interval(differences) == pytest.approx(expected)
