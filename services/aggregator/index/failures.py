"""Failures of a run, grouped by their signature: the largest group first, with examples."""

import sqlite3
from dataclasses import dataclass

from services.aggregator.index.filters import SampleFilter, all_conditions
from services.aggregator.index.rows import COLUMNS, SampleRow


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Samples that failed in the same way; the examples are the first and the last one indexed."""

    id: str
    samples: int
    examples: list[SampleRow]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The largest groups of ``failures`` samples in ``groups`` groups."""

    failures: int
    groups: int
    largest: list[FailureGroup]


def failure_groups(
    connection: sqlite3.Connection, run_id: int, wanted: SampleFilter, limit: int
) -> FailureGroups:
    """Group the failures that match a filter; at most ``limit`` groups, the largest first."""
    where, values = all_conditions(connection, run_id, wanted)
    # In the order of its index nothing is sorted; the other one covers the columns of filters.
    index = "samples_failures" if wanted.empty else "samples_found"
    counted = connection.execute(
        "SELECT failure_id, count(*), min(id), max(id) "
        f"FROM samples INDEXED BY {index} WHERE {' AND '.join(where)} AND failure_id IS NOT NULL "
        "GROUP BY failure_id ORDER BY 2 DESC, 1",
        values,
    ).fetchall()
    largest = [
        FailureGroup(found, samples, [_row(connection, number) for number in sorted({*ends})])
        for found, samples, *ends in counted[:limit]
    ]
    return FailureGroups(sum(row[1] for row in counted), len(counted), largest)


def _row(connection: sqlite3.Connection, number: int) -> SampleRow:
    found = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples WHERE id = ?", (number,)
    ).fetchone()
    return SampleRow.model_validate(dict(found))
