"""Anytime-valid test and confidence sequence of a mean."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shared.analysis.sequential import ALPHA, log_capital, sequential_mean

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
    found = sequential_mean(array, array, limit)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    mirrored = sequential_mean(-array, -array, -limit)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    decided = found.low >= limit - 1e-9 or found.high <= limit + 1e-9
    assert decided or found.problems == len(values)
    # A decision stands whatever comes after it, and not before the least number of problems.
    later = sequential_mean(np.append(array, -array), np.append(array, -array), limit)
    assert later == found or not decided
    assert sequential_mean(array, array, limit, len(values)).problems == len(values)


def test_no_problem_decides_nothing():
    found = sequential_mean(np.array([]), np.array([]), 0.0)
    assert (found.problems, found.mean, found.low, found.high) == (0, None, -1, 1)


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
    used = [one.problems for values in drawn for one in [sequential_mean(values, values, 0.0)]]
    assert np.median(used) < 280
