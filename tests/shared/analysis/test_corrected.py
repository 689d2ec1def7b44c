"""Corrected scores: the formula, its limits, and how often the intervals cover."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.corrected import (
    MeanRate,
    SuiteRates,
    corrected_share,
)

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
        found = corrected_share(float(accepted.mean()), problems, SuiteRates(q0, q1))
        covered += found is not None and found.ci95[0] <= score <= found.ci95[1]
    return covered / times


def test_intervals_cover():
    found = coverage(score=0.5, negative=0.8, positive=0.9, problems=164, times=1000, seed=1)
    assert 0.93 <= found <= 0.98


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_intervals_cover_over_the_grid():
    for problems in (164, 1000):
        grid = itertools.product((0.2, 0.5, 0.8), (0.8, 0.95, 1.0), (0.7, 0.9, 1.0))
        for score, negative, positive in grid:
            case = (problems, score, negative, positive)
            found = coverage(score, negative, positive, problems, times=4000, seed=1)
            assert 0.935 <= found <= 0.97, case
