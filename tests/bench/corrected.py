"""Coverage of corrected scores' intervals by simulation: `python -m tests.bench.corrected`.

Each problem has 10 wrong and 3 right labelled programs and one answer. With `spread` the tests of
problems differ: their rates have a Beta distribution with the concentration 5.
"""

import argparse
import itertools

import numpy as np

from shared.analysis.bootstrap import Floats
from shared.analysis.corrected import MeanRate, SuiteRates, corrected_share

WRONG, RIGHT, CONCENTRATION = 10, 3, 5.0


def coverage(
    score: float,
    negative: float,
    positive: float,
    problems: int,
    times: int,
    seed: int,
    *,
    spread: bool = False,
) -> float:
    """Share of simulations whose interval contains the true score.

    Args:
        score: Share of right answers.
        negative: True negative rate of the tests.
        positive: True positive rate of the tests.
        problems: Problems of the set, all of them certified.
        times: Simulations.
        seed: Of the random numbers.
        spread: Whether problems have tests with different rates.
    """
    chance = np.random.default_rng(seed)

    def rates(mean: float) -> Floats:
        if not spread or mean == 1:
            return np.full(problems, mean)
        return chance.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, problems)

    covered = 0
    for _ in range(times):
        rejects, accepts = rates(negative), rates(positive)
        right = chance.random(problems) < score
        accepted = chance.random(problems) < np.where(right, accepts, 1 - rejects)
        shares = chance.binomial(WRONG, rejects) / WRONG, chance.binomial(RIGHT, accepts) / RIGHT
        q0, q1 = (MeanRate.of(each.tolist()) for each in shares)
        assert q0 and q1
        found = corrected_share(float(accepted.mean()), problems, SuiteRates(q0, q1))
        covered += found is not None and found.ci95[0] <= score <= found.ci95[1]
    return covered / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for spread, problems in itertools.product((False, True), (164, 1000)):
        found = {
            case: coverage(*case, problems, chosen.times, chosen.seed, spread=spread)
            for case in itertools.product((0.2, 0.5, 0.8), (0.8, 0.95, 1.0), (0.7, 0.9, 1.0))
        }
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        name = "different tests" if spread else "equal tests"
        inside = sum(0.94 <= one <= 0.965 for one in found.values())
        print(
            f"{problems} problems, {name}: {found[low]:.1%} {low} to {found[high]:.1%} {high}, "
            f"{inside} of {len(found)} within 94 to 96.5 %"
        )


if __name__ == "__main__":
    main()
