"""Filters of samples: choices among values, ranges of figures, and texts, as conditions in SQL."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

from services.aggregator.index import search
from services.aggregator.index.rows import KIND
from services.aggregator.index.search import PLACES, Place

MIB = 2**20
_CACHED_KINDS = 10_000  # of about one kilobyte each; a run has hundreds of them
# Column of each choice, in the order in which a page shows them.
CHOICES: Mapping[str, str] = {
    "status": "final_status",
    "dataset": "dataset",
    "difficulty": "difficulty",
    "tag": "tags",
    "detail": "detail",
    "finish": "finish_reason",
    "extraction": "extraction",
}
# Expression of each range, over columns that ``samples_found`` covers.
RANGES: Mapping[str, str] = {
    "tokens": "output_tokens",
    "gen_time": "gen_time",
    "judge_time": "total_judge_time",
    "pass_ratio": "pass_ratio",
    "cpu": "cpu_time",
    "memory": f"peak_memory / {float(MIB)}",
    "attempts": "attempts",
    "prompt_length": "prompt_length",
}

Value = str | int | float
Choice = tuple[str | None, ...]
# Values of a kind of samples by choice; what is not known is None. A sample may have several tags.
Kind = Mapping[str, frozenset[str | None]]


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds, both included; None for none. What is not known is in no range."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Filters, all of which a sample has to match; an empty one matches every sample.

    Attributes:
        status … extraction: Choices: the sample has one of the values, None for a value that is not
            known (a sample without tags, a verdict without detail).
        tokens … prompt_length: Ranges. Times are seconds, ``memory`` is in MiB.
        flipped: Whether a confirmed case changed its outcome.
        group: Id of a failure's signature.
        q: Part of the problem's id or of the detail, ASCII letters in any case.
        text: Part of one of the texts in ``places``, likewise.
    """

    status: Choice = ()
    dataset: Choice = ()
    difficulty: Choice = ()
    tag: Choice = ()
    detail: Choice = ()
    finish: Choice = ()
    extraction: Choice = ()
    tokens: Range | None = None
    gen_time: Range | None = None
    judge_time: Range | None = None
    pass_ratio: Range | None = None
    cpu: Range | None = None
    memory: Range | None = None
    attempts: Range | None = None
    prompt_length: Range | None = None
    flipped: bool | None = None
    group: str | None = None
    q: str = ""
    text: str = ""
    places: tuple[Place, ...] = PLACES

    @property
    def empty(self) -> bool:
        unset = (None, "", ())
        return all(getattr(self, one.name) in unset for one in fields(self) if one.name != "places")


EVERY = SampleFilter()


def kinds(connection: sqlite3.Connection, run_id: int) -> dict[int, Kind]:
    """The kinds of a run's samples by id: combinations of the values that choices are about."""
    rows = connection.execute("SELECT id, value FROM kinds WHERE run_id = ?", (run_id,))
    return {number: _kind(value) for number, value in rows}


def unmatched(kind: Kind, wanted: SampleFilter) -> list[str]:
    """The choices that a kind does not match."""
    return [
        name
        for name in CHOICES
        if (values := getattr(wanted, name)) and kind[name].isdisjoint(values)
    ]


def conditions(
    connection: sqlite3.Connection, run_id: int, wanted: SampleFilter, known: Mapping[int, Kind]
) -> tuple[list[str], list[Value]]:
    """Conditions over ``samples`` for a filter and their values, without those of its choices."""
    where = ["run_id = ?"]
    values: list[Value] = [run_id]
    for name, column in RANGES.items():
        if (bounds := getattr(wanted, name)) is None:
            continue
        for sign, bound in ((">=", bounds.low), ("<=", bounds.high)):
            if bound is not None:
                where.append(f"{column} {sign} ?")
                values.append(bound)
    if wanted.flipped is not None:
        where.append("flipped > 0" if wanted.flipped else "flipped = 0")
    if wanted.group is not None:
        where.append("failure_id = ?")
        values.append(wanted.group)
    if wanted.q:
        part = lower(wanted.q)
        detailed = [
            number for number, kind in known.items() for one in kind["detail"] if part in lower(one)
        ]
        where.append(f"(instr(lower(problem_id), ?) OR {_among('kind', detailed)})")
        values.append(part)
    if wanted.text:
        found, sought = search.condition(connection, run_id, wanted.text, wanted.places)
        where.append(found)
        values += sought
    return where, values


def all_conditions(
    connection: sqlite3.Connection, run_id: int, wanted: SampleFilter
) -> tuple[list[str], list[Value]]:
    """Conditions over ``samples`` for a filter with its choices, and their values."""
    if wanted.empty:
        return ["run_id = ?"], [run_id]
    known = kinds(connection, run_id)
    where, values = conditions(connection, run_id, wanted, known)
    if any(getattr(wanted, name) for name in CHOICES):
        where.append(
            _among("kind", [n for n, kind in known.items() if not unmatched(kind, wanted)])
        )
    return where, values


def lower(text: str | None) -> str:
    """The text with ASCII letters in lower case, as SQLite's function of that name."""
    return "".join(one.lower() if one.isascii() else one for one in text or "")


@lru_cache(_CACHED_KINDS)
def _kind(value: str) -> Kind:
    found = dict(zip(KIND, json.loads(value), strict=True))
    return {name: _values(found[column]) for name, column in CHOICES.items()}


def _values(value: str | list[str] | None) -> frozenset[str | None]:
    if isinstance(value, list):
        return frozenset(value) if value else frozenset([None])
    return frozenset([value or None])


def _among(column: str, numbers: list[int]) -> str:
    """A condition in literals: SQLite knows how many there are, and integers need no quotes."""
    return f"{column} IN ({', '.join(map(str, numbers))})"
