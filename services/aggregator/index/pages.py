"""Keyset pagination of samples: filtered, sorted, and stable while rows are inserted."""

import base64
import binascii
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from services.aggregator.index.filters import SampleFilter, Value, conditions
from services.aggregator.index.rows import COLUMNS, SampleRow
from shared.schemas import is_encodable

Sort = Literal[
    "problem",
    "judged_at",
    "pass_ratio",
    "output_tokens",
    "gen_time",
    "total_judge_time",
    "status",
    "cpu_time",
    "peak_memory",
    "attempts",
    "prompt_length",
]
SortOrder = Literal["asc", "desc"]

# Expressions over columns that ``samples_found`` covers.
_SORTS: dict[Sort, tuple[str, ...]] = {
    "problem": ("dataset", "problem_id", "sample_index"),
    "judged_at": ("ifnull(judged_at, -1)",),
    "pass_ratio": ("pass_ratio",),
    "output_tokens": ("ifnull(output_tokens, -1)",),
    "gen_time": ("ifnull(gen_time, -1)",),
    "total_judge_time": ("total_judge_time",),
    "status": ("final_status",),
    "cpu_time": ("ifnull(cpu_time, -1)",),
    "peak_memory": ("ifnull(peak_memory, -1)",),
    "attempts": ("attempts",),
    "prompt_length": ("ifnull(prompt_length, -1)",),
}
_INTEGER = 2**63


class CursorError(ValueError):
    """The cursor does not come from a page with this sort order."""


class SampleQuery(SampleFilter):
    """Filters, order and position of samples."""

    sort: Sort = "problem"
    order: SortOrder = "asc"
    cursor: str | None = Field(default=None, max_length=4000)
    limit: int = Field(default=50, ge=1, le=200)


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A page of samples; ``next_cursor`` is None on the last one."""

    samples: list[SampleRow]
    next_cursor: str | None


def samples_page(connection: sqlite3.Connection, run_id: int, query: SampleQuery) -> SamplePage:
    """Select one page of a run's samples.

    A page starts after a value, not at an offset, so rows inserted elsewhere do not shift it.

    Raises:
        CursorError: The cursor does not come from a page with this sort order.
    """
    keys = (*_SORTS[query.sort], "id")
    where, values = conditions(run_id, query)
    if query.cursor is not None:
        sign = ">" if query.order == "asc" else "<"
        where += f" AND ({', '.join(keys)}) {sign} ({', '.join('?' for _ in keys)})"
        values += _position(query.cursor, len(keys))
    order = ", ".join(f"{key} {query.order}" for key in keys)
    keyed = ", ".join(f"{key} AS key_{number}" for number, key in enumerate(keys))
    # The first ones are chosen in the index that covers filters and keys.
    found = connection.execute(
        f"SELECT {', '.join(f'one.{name}' for name in COLUMNS)}, page.* FROM ("
        f"SELECT id AS number, {keyed} FROM samples WHERE {where} ORDER BY {order} LIMIT ?"
        f") AS page CROSS JOIN samples AS one ON one.id = page.number",
        (*values, query.limit + 1),
    ).fetchall()
    page = found[: query.limit]
    rows = [SampleRow.model_validate({name: row[name] for name in COLUMNS}) for row in page]
    more = len(found) > len(page)
    return SamplePage(rows, _cursor(page[-1], len(keys)) if more else None)


def _cursor(row: sqlite3.Row, keys: int) -> str:
    position = json.dumps([row[f"key_{number}"] for number in range(keys)])
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def _position(cursor: str, keys: int) -> Sequence[Value]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        position = None
    if (
        not isinstance(position, list)
        or len(position) != keys
        or not all(map(_comparable, position))
    ):
        raise CursorError("not a cursor of a page with this sort order; start at the first page")
    return position


def _comparable(value: object) -> bool:
    """Whether SQLite can compare with the value."""
    if isinstance(value, str):
        return is_encodable(value)
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < _INTEGER)
