"""Failures of a run, grouped by their signature: the largest group first, with examples."""

import sqlite3
from dataclasses import dataclass

from pydantic import Field

from services.aggregator.index.filters import SampleFilter, conditions
from services.aggregator.index.rows import COLUMNS, SampleRow


class FailuresQuery(SampleFilter):
    """Filters of failures, and the number of groups."""

    limit: int = Field(default=20, ge=1, le=100)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Samples whose failures have one signature; ``id`` is the value of the filter ``group``.

    The examples are the first and the last one indexed.
    """

    id: str
    signature: str
    samples: int
    examples: list[SampleRow]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The largest of ``total`` groups of ``samples`` failures."""

    samples: int
    total: int
    groups: list[FailureGroup]


def failure_groups(
    connection: sqlite3.Connection, run_id: int, query: FailuresQuery
) -> FailureGroups:
    """Group the failures that match a filter, the largest group first."""
    where, values = conditions(run_id, query)
    counted = connection.execute(
        "SELECT failure_id, count(*), min(id), max(id) "
        f"FROM samples WHERE {where} AND failure_id IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1",
        values,
    ).fetchall()
    groups = []
    for failure, samples, *ends in counted[: query.limit]:
        examples = [_row(connection, number) for number in sorted({*ends})]
        groups.append(FailureGroup(failure, examples[0].failure or "", samples, examples))
    return FailureGroups(sum(row[1] for row in counted), len(counted), groups)


def _row(connection: sqlite3.Connection, number: int) -> SampleRow:
    found = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples WHERE id = ?", (number,)
    ).fetchone()
    return SampleRow.model_validate(dict(found))
