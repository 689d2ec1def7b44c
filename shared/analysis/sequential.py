"""Anytime-valid test and confidence sequence of a mean: a mixture e-process, by betting.

A bettor starts with 1 and stakes the fraction f of the capital on each value x in [-1, 1] against
the hypothesis that the mean is at most m. With y = (1 + x) / 2 and μ = (1 + m) / 2 a value
multiplies the capital by 1 - f + f y / μ, whose expectation is at most 1. So the mean capital over
a uniform mixture of f in (0, 1) is an e-process. By Ville's inequality it ever reaches 1 / α with
a probability of at most α, however often it is looked at.

For pairs (gained 1, lost -1, same 0) and m = 0 it is the likelihood ratio of the share of gains
among the discordant pairs, with a uniform prior on (1/2, 1), against 1/2. A margin or values
between -1 and 1 need no other test. Sources: Ville 1939; Robbins 1970, "Statistical methods related
to the law of the iterated logarithm"; Waudby-Smith & Ramdas 2024, "Estimating means of bounded
random variables by betting".
"""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from shared.analysis.bootstrap import Floats

ALPHA = 0.05
"""Probability that an interval ever excludes the true mean, in equal parts on both sides."""
_FRACTIONS = (np.arange(100) + 0.5) / 100
_REJECTED = np.log(2 / ALPHA)
_HALVINGS = 40
_EDGE = 1e-9  # no capital is defined against a mean of -1


@dataclass(frozen=True, slots=True)
class SequentialMean:
    """A mean when a limit was decided, or of all values.

    Attributes:
        problems: The number of values until then.
        mean: Their mean; None without a value.
        low: Lower end of the confidence sequence at this time.
        high: Its upper end.
    """

    problems: int
    mean: float | None
    low: float
    high: float


def order_key(seed: int, dataset: str, problem_id: str) -> bytes:
    """Sort key of a problem: an order that depends on the seed and the problem's name alone.

    Answers may not decide the order. Slow programs end late, so the order of verdicts is no random
    one.
    """
    return sha256(f"{seed}\n{dataset}\n{problem_id}".encode()).digest()


def log_capital(values: Floats, mean: float) -> Floats:
    """Log of the e-process against "the mean is at most ``mean``", after each value.

    Args:
        values: In [-1, 1], in the order of their observation: n.
        mean: In (-1, 1).

    Returns:
        n numbers.
    """
    gains = (1 + values[:, None]) / (1 + mean)
    # A value of -1 loses the staked fraction, never everything.
    logs = np.cumsum(np.log1p(_FRACTIONS * (gains - 1)), axis=0)
    return np.asarray(np.logaddexp.reduce(logs, axis=1) - np.log(len(_FRACTIONS)))


def sequential_mean(
    low_values: Floats, high_values: Floats, limit: float, first: int = 1
) -> SequentialMean:
    """Look after each value whether the mean is shown to be at least, or below, ``limit``.

    Args:
        low_values: In [-1, 1], in the order of their observation. They must show "at least".
        high_values: The same, or the larger ones that unknown parts of the values permit; they must
            show "below".
        limit: In [-1, 1].
        first: The number of values before which nothing is decided.
    """
    limit = min(max(limit, -1 + _EDGE), 1 - _EDGE)
    crossed = (log_capital(low_values, limit) >= _REJECTED) | (
        log_capital(-high_values, -limit) >= _REJECTED
    )
    places = np.flatnonzero(crossed[first - 1 :])
    count = first + int(places[0]) if len(places) else len(low_values)
    if not count:
        return SequentialMean(0, None, -1.0, 1.0)
    low, high = _lower_end(low_values[:count]), -_lower_end(-high_values[:count])
    return SequentialMean(count, float(low_values[:count].mean()), low, high)


def _lower_end(values: Floats) -> float:
    """The largest mean that the values reject; the capital falls with the mean."""
    kinds, counts = np.unique(values, return_counts=True)
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gains = (1 + kinds[:, None]) / (1 + middle)
        logs = counts @ np.log1p(_FRACTIONS * (gains - 1))
        if np.logaddexp.reduce(logs) - np.log(len(_FRACTIONS)) >= _REJECTED:
            low = middle
        else:
            high = middle
    return low
