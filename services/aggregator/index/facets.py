"""Facets: how many samples each value of a choice has under the other filters."""

import sqlite3
from collections import Counter
from dataclasses import dataclass

from services.aggregator.index.filters import (
    CHOICES,
    Choice,
    SampleFilter,
    conditions,
    kinds,
    unmatched,
)

MOST_VALUES = 100


@dataclass(frozen=True, slots=True)
class Facet:
    """Numbers of samples by value, the most frequent first; ``values`` is how many there are."""

    counts: list[tuple[str | None, int]]
    values: int


@dataclass(frozen=True, slots=True)
class Facets:
    """``samples`` match the filter; a facet counts those that match it but for its choice."""

    samples: int
    facets: dict[str, Facet]


def facets(connection: sqlite3.Connection, run_id: int, wanted: SampleFilter) -> Facets:
    """Count the samples of a run by every choice.

    One scan of an index counts the samples of each kind, under the filters that are no choices; the
    kinds are few and are counted here.
    """
    known = kinds(connection, run_id)
    where, values = conditions(connection, run_id, wanted, known)
    counted: dict[int, int] = dict(
        connection.execute(
            "SELECT kind, count(*) FROM samples INDEXED BY samples_found "
            f"WHERE {' AND '.join(where)} GROUP BY kind",
            values,
        ).fetchall()
    )
    counts: dict[str, Counter[str | None]] = {name: Counter() for name in CHOICES}
    total = 0
    for number, samples in counted.items():
        kind = known[number]
        missed = unmatched(kind, wanted)
        total += 0 if missed else samples
        if len(missed) > 1:
            continue  # counts nowhere: each facet leaves out one choice
        for name in missed or CHOICES:
            for value in kind[name]:
                counts[name][value] += samples
    return Facets(total, {name: _facet(counts[name], getattr(wanted, name)) for name in CHOICES})


def _facet(counts: Counter[str | None], chosen: Choice) -> Facet:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0] or ""))
    # A value that is chosen is listed, even if no sample has it under the other filters.
    listed = dict(ordered[:MOST_VALUES])
    listed |= {value: counts[value] for value in chosen}
    return Facet(list(listed.items()), len(counts))
