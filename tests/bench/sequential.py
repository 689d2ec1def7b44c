"""Error and saving of the sequential gate, by simulation: ``python -m tests.bench.sequential``.

A problem is gained with probability (discordant + effect) / 2, lost with (discordant - effect) / 2.
The error is the share of runs whose confidence sequence ever excludes the true effect.
"""

import argparse

import numpy as np

from shared.analysis.sequential import sequential_mean

_EFFECTS = (-0.05, 0.0, 0.04, 0.08, 0.12)
_ROW = "{:>8} {:>10} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}"


def differences(
    effect: float, discordant: float, problems: int, random: np.random.Generator
) -> np.ndarray:
    """A run's differences, one per problem: 1, 0 or -1."""
    drawn = random.random(problems)
    gained, lost = (discordant + effect) / 2, (discordant - effect) / 2
    return np.where(drawn < gained, 1.0, np.where(drawn < gained + lost, -1.0, 0.0))


def simulate(
    effect: float, discordant: float, limit: float, problems: int, runs: int, seed: int
) -> list[object]:
    """Simulate runs and return a row of figures; shares are per cent."""
    random = np.random.default_rng([seed, problems, round(1000 * (1 + limit))])
    goes, no_goes, errors, used = 0, 0, 0, []
    for _ in range(runs):
        values = differences(effect, discordant, problems, random)
        found = sequential_mean(values, values, limit)
        goes += found.low >= limit - 1e-9
        no_goes += found.high < limit - 1e-9
        used.append(found.problems)
        true = sequential_mean(values, values, effect)
        errors += not true.low <= effect <= true.high
    shares = [f"{100 * count / runs:.1f}" for count in (goes, no_goes, errors)]
    return [
        problems,
        f"{100 * discordant:.0f}",
        f"{100 * limit:+.0f}",
        f"{100 * effect:+.0f}",
        *shares,
        f"{np.median(used):.0f}",
    ]


def main() -> None:
    """Print a table, one row per setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=41)
    options = parser.parse_args()
    headings = ("problems", "discordant", "limit", "effect", "go", "no-go", "error", "median")
    print(_ROW.format(*headings))
    for problems in (164, 1000):
        for discordant in (0.12, 0.2):
            for limit in (0.0, -0.05):
                for effect in _EFFECTS:
                    row = simulate(effect, discordant, limit, problems, options.runs, options.seed)
                    print(_ROW.format(*row), flush=True)


if __name__ == "__main__":
    main()
