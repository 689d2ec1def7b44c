"""Paired statistics against values computed by hand, scipy, and invariants."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.analysis.bootstrap import RESAMPLES
from shared.analysis.paired import (
    ALPHA,
    PairedDifference,
    adjusted_interval,
    contest,
    discordant_interval,
    log_capital,
    mcnemar_exact,
    paired_differences,
    sequential_mean,
    sign_flip_ps,
)

stats = pytest.importorskip("scipy.stats")


def paired_difference(first, second):
    names = sorted(first)
    values = (np.array([run[name] for name in names], dtype=float) for run in (first, second))
    (difference,) = paired_differences([tuple(values)])
    return difference


def sign_flip_p(differences):
    (p_value,) = sign_flip_ps([np.array(differences, dtype=float)])
    return p_value


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
    difference = paired_difference(*binary(both=3, lost=1, gained=3, neither=3))
    assert (difference.problems, difference.first, difference.second) == (10, 0.4, 0.6)
    assert difference.difference == pytest.approx(0.2)
    assert difference.p_value == mcnemar_exact(1, 3)
    assert difference.ci95 == discordant_interval(1, 3, 10)
    assert difference.detectable == pytest.approx(2.801585 * math.sqrt(6 / 12) / math.sqrt(10))


def test_means_of_several_samples():
    source = random.Random(3)
    first = numbered([source.random() for _ in range(200)])
    second = {name: min(1.0, value + source.random() / 5) for name, value in first.items()}
    difference = paired_difference(first, second)
    differences = [second[name] - first[name] for name in first]
    half = 1.96 * stats.sem(differences)
    assert difference.difference == pytest.approx(sum(differences) / 200)
    assert difference.ci95 == pytest.approx(
        [difference.difference - half, difference.difference + half], abs=2e-3
    )
    assert difference.p_value == pytest.approx(1e-4)


def test_no_problems_and_one():
    assert paired_difference({}, {}) == PairedDifference(0)
    difference = paired_difference({"p": 0.25}, {"p": 0.75})
    assert (difference.difference, difference.ci95, difference.p_value) == (0.5, None, None)


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
    (difference,) = paired_differences([(first, second)], clusters)
    sums = np.bincount(clusters, weights=second - first)
    theirs = scipys(sums, np.bincount(clusters).astype(float))
    alone = scipys(second - first, np.ones(len(first)))
    assert apart.ci95 == alone
    assert difference.ci95 == [min(theirs[0], alone[0]), max(theirs[1], alone[1])]
    assert difference.ci95[1] - difference.ci95[0] > 1.3 * (apart.ci95[1] - apart.ci95[0])
    assert difference.detectable > apart.detectable
    assert (difference.clusters, apart.clusters) == (8, None)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(shares, shares, st.integers(0, 3)), min_size=1, max_size=20))
def test_clustering_never_narrows_and_changes_nothing_else(values):
    first, second = (np.array([value[side] for value in values]) for side in (0, 1))
    clusters = np.unique([value[2] for value in values], return_inverse=True)[1]
    (apart,) = paired_differences([(first, second)])
    (difference,) = paired_differences([(first, second)], clusters)
    assert (difference.first, difference.second, difference.difference) == (
        apart.first, apart.second, apart.difference
    )  # fmt: skip
    assert difference.p_value == apart.p_value
    assert difference.detectable >= apart.detectable - 1e-12
    if apart.ci95:
        assert difference.ci95[0] <= apart.ci95[0] <= apart.ci95[1] <= difference.ci95[1]
        assert difference.ci95[0] <= difference.difference <= difference.ci95[1]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_closed_form_is_that_of_discordant_pairs(lost, gained, rest):
    differences = np.array([-1.0] * lost + [1.0] * gained + [0.0] * rest)
    if len(differences):
        expected = discordant_interval(lost, gained, len(differences))
        assert adjusted_interval(differences) == pytest.approx(expected)


# Anytime-valid test and confidence sequence of a mean

VALUES = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=60)
MEANS = st.floats(-0.9, 0.9)


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.integers(1, 4))
def test_the_capital_against_the_true_mean_is_1_on_average(weights, problems):
    """An e-process: over all sequences of lost, same and gained the expectation is exactly 1."""
    shares = [weight / sum(weights) for weight in weights]
    mean = shares[2] - shares[0]
    expected = 0.0
    for sequence in itertools.product((-1, 0, 1), repeat=problems):
        probability = math.prod(shares[one + 1] for one in sequence)
        expected += probability * math.exp(log_capital(np.array(sequence, float), mean)[-1])
    assert expected == pytest.approx(1)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5))
def test_without_a_margin_it_is_the_beta_mixture_of_gained_and_lost(gained, lost, same):
    """∫ θ^g (1 - θ)^l 2dθ over (1/2, 1), against 2^-(g + l); pairs that agree change nothing."""
    values = np.array([1.0] * gained + [-1.0] * lost + [0.0] * (same + 1))
    beta = stats.beta(gained + 1, lost + 1)
    area = beta.sf(0.5) * math.exp(
        math.lgamma(gained + 1) + math.lgamma(lost + 1) - math.lgamma(gained + lost + 2)
    )
    expected = math.log(2 * area) + (gained + lost) * math.log(2)
    assert log_capital(values, 0.0)[-1] == pytest.approx(expected, abs=0.02)


@given(VALUES, MEANS)
def test_the_interval_has_the_mean_and_says_what_was_decided(values, limit):
    array = np.array(values)
    mean = sequential_mean(array, array, limit)
    assert -1 <= mean.low <= mean.mean <= mean.high <= 1
    mirrored = sequential_mean(-array, -array, -limit)
    assert (mirrored.low, mirrored.high) == pytest.approx((-mean.high, -mean.low))
    decided = mean.low >= limit - 1e-9 or mean.high <= limit + 1e-9
    assert decided or mean.problems == len(values)
    # A decision stands whatever comes after it, and not before the least number of problems.
    later = sequential_mean(np.append(array, -array), np.append(array, -array), limit)
    assert later == mean or not decided
    assert sequential_mean(array, array, limit, len(values)).problems == len(values)


def test_no_problem_decides_nothing():
    mean = sequential_mean(np.array([]), np.array([]), 0.0)
    assert (mean.problems, mean.mean, mean.low, mean.high) == (0, None, -1, 1)


def differences(effect: float, discordant: float, problems: int, random) -> np.ndarray:
    """A run's differences, one per problem: 1, 0 or -1."""
    drawn = random.random(problems)
    gained, lost = (discordant + effect) / 2, (discordant - effect) / 2
    return np.where(drawn < gained, 1.0, np.where(drawn < gained + lost, -1.0, 0.0))


def test_errors_are_rare_although_every_problem_is_a_look():
    random, runs = np.random.default_rng(41), 300
    for effect in (0.0, 0.08):
        drawn = [differences(effect, 0.2, 300, random) for _ in range(runs)]
        found = [sequential_mean(values, values, effect) for values in drawn]
        wrong = sum(not one.low <= effect <= one.high for one in found)
        assert wrong <= stats.binom.isf(1e-6, runs, ALPHA), f"{wrong} of {runs} at {effect}"
    used = [sequential_mean(values, values, 0.0).problems for values in drawn[:100]]
    assert np.median(used) < 280
