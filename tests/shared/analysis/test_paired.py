"""Paired statistics against values computed by hand, scipy, and invariants."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.analysis.bootstrap import RESAMPLES
from shared.analysis.paired import (
    PairedDifference,
    adjusted_interval,
    contest,
    discordant_interval,
    mcnemar_exact,
    paired_differences,
    sign_flip_ps,
)

stats = pytest.importorskip("scipy.stats")


def paired_difference(first, second):
    names = sorted(first)
    values = (np.array([run[name] for name in names], dtype=float) for run in (first, second))
    (found,) = paired_differences([tuple(values)])
    return found


def sign_flip_p(differences):
    (found,) = sign_flip_ps([np.array(differences, dtype=float)])
    return found


def numbered(values):
    return {f"p{i}": value for i, value in enumerate(values)}


def binary(both, lost, gained, neither):
    first = [1.0] * both + [1.0] * lost + [0.0] * gained + [0.0] * neither
    second = [1.0] * both + [0.0] * lost + [1.0] * gained + [0.0] * neither
    return numbered(first), numbered(second)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_a_binomial_test(lost, gained):
    theirs = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    assert mcnemar_exact(lost, gained) == pytest.approx(theirs, rel=1e-9, abs=1e-300)
    assert mcnemar_exact(lost, gained) == mcnemar_exact(gained, lost)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_discordant_interval_holds_the_difference_and_mirrors(lost, gained, rest):
    pairs = lost + gained + rest
    if pairs:
        low, high = discordant_interval(lost, gained, pairs)
        assert -1 <= low <= (gained - lost) / pairs <= high <= 1
        assert low < high
        assert discordant_interval(gained, lost, pairs) == pytest.approx([-high, -low])


def test_sign_flips_against_scipys_permutation_test():
    source = random.Random(2)
    differences = [source.gauss(0.05, 0.2) for _ in range(80)]
    theirs = stats.permutation_test(
        (differences,), lambda x: sum(x), permutation_type="samples", n_resamples=9999, rng=7
    ).pvalue
    assert sign_flip_p(differences) == pytest.approx(theirs, abs=0.015)


def test_shares_of_0_and_1():
    found = paired_difference(*binary(both=3, lost=1, gained=3, neither=3))
    assert (found.problems, found.first, found.second) == (10, 0.4, 0.6)
    assert found.difference == pytest.approx(0.2)
    assert found.p_value == mcnemar_exact(1, 3)
    assert found.ci95 == discordant_interval(1, 3, 10)
    assert found.detectable == pytest.approx(2.801585 * math.sqrt(6 / 12) / math.sqrt(10))


def test_means_of_several_samples():
    source = random.Random(3)
    first = numbered([source.random() for _ in range(200)])
    second = {name: min(1.0, value + source.random() / 5) for name, value in first.items()}
    found = paired_difference(first, second)
    differences = [second[name] - first[name] for name in first]
    half = 1.96 * stats.sem(differences)
    assert found.difference == pytest.approx(sum(differences) / 200)
    assert found.ci95 == pytest.approx([found.difference - half, found.difference + half], abs=2e-3)
    assert found.p_value == pytest.approx(1e-4)


def test_no_problems_and_one():
    assert paired_difference({}, {}) == PairedDifference(0)
    one = paired_difference({"p": 0.25}, {"p": 0.75})
    assert (one.difference, one.ci95, one.p_value) == (0.5, None, None)


values = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))


@settings(max_examples=40)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=40), st.randoms())
def test_swapping_the_runs_swaps_the_signs_and_order_does_not_matter(pairs, source):
    first, second = numbered([a for a, _ in pairs]), numbered([b for _, b in pairs])
    found, swapped = paired_difference(first, second), paired_difference(second, first)
    assert swapped.difference == -found.difference
    assert (swapped.p_value, swapped.detectable) == (found.p_value, found.detectable)
    if found.ci95 is not None:
        low, high = found.ci95
        assert swapped.ci95 == pytest.approx([-high, -low], rel=1e-5, abs=1e-9)
    names = source.sample(sorted(first), len(first))
    reordered = ({name: run[name] for name in names} for run in (first, second))
    assert paired_difference(*reordered) == found


# Clusters of problems: scipy, closed forms, invariants


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
    first, second = (np.array([value[side] for value in values]) for side in (0, 1))
    clusters = np.unique([value[2] for value in values], return_inverse=True)[1]
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
