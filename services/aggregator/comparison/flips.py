"""Selection of pairs of samples: flips, changes of status, slices."""

import numpy as np

from services.aggregator.comparison.models import FlipsQuery
from shared.analysis.compare import PairedSamples
from shared.analysis.contests import Ints
from shared.analysis.runs import STATUSES, Bools
from shared.errors import DataError


def select_pairs(paired: PairedSamples, query: FlipsQuery) -> Ints:
    """The places of the pairs that a query asks for, in their order.

    Raises:
        DataError: The slice does not exist.
    """
    chosen = _of_kind(paired, query)
    for status, side in ((query.first, 0), (query.second, 1)):
        if status is not None:
            chosen &= paired.columns(lambda one: one.status)[side] == STATUSES.index(status)
    problems = np.ones(len(paired.problem_ids), dtype=bool)
    if query.q:
        text = query.q.lower()
        problems &= np.array([text in one.lower() for one in paired.problem_ids], dtype=bool)
    if query.dimension is not None:
        problems &= _in_slice(paired, query.dimension, query.bucket)
    return np.flatnonzero(chosen & problems[paired.problem])


def _of_kind(paired: PairedSamples, query: FlipsQuery) -> Bools:
    match query.kind:
        case "flips":
            return np.asarray(paired.flipped != 0)
        case "gained":
            return np.asarray(paired.flipped > 0)
        case "lost":
            return np.asarray(paired.flipped < 0)
        case "changed":
            first, second = paired.columns(lambda one: one.status)
            return np.asarray(first != second)
        case _:
            return np.ones(len(paired), dtype=bool)


def _in_slice(paired: PairedSamples, dimension: str, bucket: str | None) -> Bools:
    buckets = paired.buckets.get(dimension)
    if buckets is None:
        known = ", ".join(paired.buckets)
        raise DataError(f"dimension {dimension!r} does not exist; there are {known}")
    found = np.zeros(len(paired.problem_ids), dtype=bool)
    if bucket is None or bucket not in buckets:
        raise DataError(f"{dimension} has no bucket {bucket!r}; /api/compare lists them")
    found[buckets[bucket]] = True
    return found
