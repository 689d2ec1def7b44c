"""Paired differences of values by the ids of their problems."""

from collections.abc import Mapping, Sequence

import numpy as np

from shared.analysis.paired import PairedDifference, paired_differences, sign_flip_ps


def paired_difference(
    first: Mapping[str, float],
    second: Mapping[str, float],
    clusters: Mapping[str, int] | None = None,
) -> PairedDifference:
    """Compare two runs by the value of each problem; ``clusters`` has its cluster's number."""
    assert first.keys() == second.keys()
    names = sorted(first)
    values = [np.array([run[name] for name in names], dtype=float) for run in (first, second)]
    numbers = None
    if clusters is not None:
        numbers = np.array([clusters[name] for name in names], dtype=np.int64)
    (found,) = paired_differences([(values[0], values[1])], numbers)
    return found


def sign_flip_p(differences: Sequence[float]) -> float:
    (found,) = sign_flip_ps([np.array(differences, dtype=float)])
    return found
