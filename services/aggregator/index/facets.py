"""Facets: how many samples each value of a choice has under the other filters."""

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass

from services.aggregator.index.filters import CHOICES, SampleFilter, without_choices
from services.aggregator.index.parameters import Choice

MOST_VALUES = 100
_COLUMNS = ", ".join(CHOICES.values())


@dataclass(frozen=True, slots=True)
class ValueCount:
    """Samples with a value, null where it is not known."""

    value: str | None
    samples: int


@dataclass(frozen=True, slots=True)
class Facet:
    """Samples by value under all filters but the one of this choice, the most frequent first.

    At most 100 of ``total`` values, and those that are chosen.
    """

    total: int
    counts: list[ValueCount]


@dataclass(frozen=True, slots=True)
class Facets:
    """Number of samples that match all filters, and the counts of each choice."""

    samples: int
    facets: dict[str, Facet]


def facets(connection: sqlite3.Connection, run_id: int, wanted: SampleFilter) -> Facets:
    """Count the samples of a run by every choice.

    One scan of the covering index counts the samples by the values of all choices, under the other
    filters; the combinations are few and are counted here.
    """
    where, values = without_choices(run_id, wanted)
    cursor = connection.cursor()
    cursor.row_factory = None
    counts: dict[str, Counter[str | None]] = {name: Counter() for name in CHOICES}
    total = 0
    for *found, samples in cursor.execute(
        f"SELECT {_COLUMNS}, count(*) FROM samples WHERE {' AND '.join(where)} GROUP BY {_COLUMNS}",
        values,
    ):
        kind = {name: _values(name, one) for name, one in zip(CHOICES, found, strict=True)}
        missed = [
            name
            for name in CHOICES
            if (chosen := getattr(wanted, name)) and not set(chosen) & set(kind[name])
        ]
        total += 0 if missed else samples
        if len(missed) > 1:
            continue  # counts nowhere: each facet leaves out one choice
        for name in missed or CHOICES:
            for value in kind[name]:
                counts[name][value] += samples
    return Facets(
        total, {name: _facet(counts[name], getattr(wanted, name) or ()) for name in CHOICES}
    )


def _values(choice: str, found: str | None) -> list[str | None]:
    """The values of a column; what is not known is None. A sample may have several tags."""
    return (json.loads(found or "[]") if choice == "tag" else [found or None]) or [None]


def _facet(counts: Counter[str | None], chosen: Choice) -> Facet:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0] or ""))
    # A value that is chosen is listed, even if no sample has it under the other filters.
    listed = dict(ordered[:MOST_VALUES])
    listed |= {value: counts[value] for value in chosen}
    return Facet(len(counts), [ValueCount(*one) for one in listed.items()])
