"""Queries of the API, and filters of samples as conditions in SQL."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from services.aggregator.index import search
from services.aggregator.index.search import PLACES, SHORTEST, Place
from shared.statuses import ExtractionReason, FinalStatus

MIB = 2**20
UNKNOWN = "-"
_MOST_VALUES = 50

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


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds, both included; None for none. What is not known is in no range."""

    low: float | None = None
    high: float | None = None

    @classmethod
    def parse(cls, text: object) -> object:
        """Parse ``MIN..MAX``, ``MIN..`` or ``..MAX``."""
        if not isinstance(text, str):
            return text
        low, separator, high = text.partition("..")
        if not separator or not (low or high):
            raise ValueError("not a range; write MIN..MAX, MIN.. or ..MAX")
        return cls(*(float(bound) if bound else None for bound in (low, high)))


def choices(text: object) -> object:
    """Split values at commas; each is percent-encoded, and ``-`` is None."""
    if not isinstance(text, str):
        return text
    items = text.split(",")
    if not all(items):
        raise ValueError("a value is empty; write values with a comma between them")
    if len(items) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    return tuple(dict.fromkeys(None if item == UNKNOWN else unquote(item) for item in items))


_TEXT = WithJsonSchema({"type": "string"})
Bounds = Annotated[Range, BeforeValidator(Range.parse), _TEXT]
Choices = Annotated[tuple[str | None, ...], BeforeValidator(choices), _TEXT]
Statuses = Annotated[tuple[FinalStatus | None, ...], BeforeValidator(choices), _TEXT]
Extractions = Annotated[tuple[ExtractionReason | None, ...], BeforeValidator(choices), _TEXT]
Places = Annotated[tuple[Place, ...], BeforeValidator(choices), _TEXT]


class Query(BaseModel):
    """Parameters of a request; others are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class PageQuery(Query):
    """Position in a list."""

    offset: int = Field(default=0, ge=0, lt=2**31)
    limit: int = Field(default=50, ge=1, le=200)


class SampleFilter(Query):
    """Filters of samples, all of which a sample has to match.

    Several values are separated by commas, of which a sample has to have one; `-` stands for an
    unknown value. Ranges are `MIN..MAX`, `MIN..` or `..MAX`, bounds included: times in seconds,
    `memory` in MiB, `prompt_length` in characters. `q` matches parts of problem id and detail,
    `text` parts of the texts named by `in`, by default all. `group` is a failure's `failure_id`.
    """

    status: Statuses | None = None
    dataset: Choices | None = None
    difficulty: Choices | None = None
    tag: Choices | None = None
    detail: Choices | None = None
    finish: Choices | None = None
    extraction: Extractions | None = None
    tokens: Bounds | None = None
    gen_time: Bounds | None = None
    judge_time: Bounds | None = None
    pass_ratio: Bounds | None = None
    cpu: Bounds | None = None
    memory: Bounds | None = None
    attempts: Bounds | None = None
    prompt_length: Bounds | None = None
    flipped: Literal["0", "1"] | None = None
    group: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    q: str | None = Field(default=None, max_length=200)
    text: str | None = Field(default=None, min_length=SHORTEST, max_length=200)
    places: Places | None = Field(default=None, alias="in")


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


class SampleQuery(SampleFilter, PageQuery):
    """Filters, order and position of samples."""

    sort: Sort = "problem"
    order: Literal["asc", "desc"] = "asc"


class FailuresQuery(SampleFilter):
    """Filters of failures, and the number of groups."""

    limit: int = Field(default=20, ge=1, le=100)


class CompareQuery(Query):
    """Runs to compare: ids, separated by commas; the first is the baseline.

    An id with a comma or a percent sign is percent-encoded within the list.
    """

    runs: str = Field(min_length=1, max_length=20_000)


class _DatasetQuery(CompareQuery, PageQuery):
    dataset: str = Field(min_length=1, max_length=500)


class GridQuery(_DatasetQuery):
    """Runs, a data set, and which of its problems: first those on which the runs disagree most, or
    the hardest ones, which no run solves."""

    first: Literal["disagreement", "hardest"] = "disagreement"


class FlipsQuery(_DatasetQuery):
    """Which pairs of two runs: ``flips`` are accepted in one of them, ``gained`` in the second,
    ``lost`` in the first, ``changed`` have different statuses.

    ``first`` and ``second`` are statuses in the two runs, ``q`` matches parts of the problem id,
    ``dimension`` and ``bucket`` name a slice.
    """

    kind: Literal["flips", "gained", "lost", "changed", "all"] = "flips"
    first: FinalStatus | None = None
    second: FinalStatus | None = None
    q: str | None = Field(default=None, max_length=200)
    dimension: str | None = Field(default=None, max_length=50)
    bucket: str | None = Field(default=None, max_length=500)


class HistoryQuery(Query):
    """The measurement whose runs are wanted."""

    protocol: str | None = Field(default=None, min_length=1, max_length=64)


class GateQuery(Query):
    """A run, and the one that it is checked against."""

    baseline: str = Field(min_length=1, max_length=1000)
    run: str = Field(min_length=1, max_length=1000)


def conditions(run_id: int, wanted: SampleFilter) -> tuple[str, list[Value]]:
    """A condition over ``samples`` for a filter, with its values."""
    where, values = without_choices(run_id, wanted)
    for name in CHOICES:
        if chosen := getattr(wanted, name):
            parts = [_has(name, value) for value in chosen]
            where.append(f"({' OR '.join(part for part, _ in parts)})")
            values += [value for _, value in parts]
    return " AND ".join(where), values


def without_choices(run_id: int, wanted: SampleFilter) -> tuple[list[str], list[Value]]:
    """Conditions for a filter without those of its choices, with their values."""
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
        where.append("flipped > 0" if wanted.flipped == "1" else "flipped = 0")
    if wanted.group is not None:
        where.append("failure_id = ?")
        values.append(wanted.group)
    if wanted.q:
        where.append("(instr(lower(problem_id), ?) OR instr(lower(detail), ?))")
        values += [lower(wanted.q)] * 2
    if wanted.text:
        condition, sought = search.condition(run_id, wanted.text, wanted.places or PLACES)
        where.append(condition)
        values += sought
    return where, values


def _has(choice: str, value: str | None) -> tuple[str, Value]:
    """A condition that is true where a sample has the value; what is not known is NULL or empty."""
    column = CHOICES[choice]
    if value is None:
        return f"ifnull({column}, '') IN (?, '[]')", ""
    if choice == "tag":  # a JSON array of texts
        return f"instr({column}, ?)", json.dumps(value)
    return f"{column} = ?", value


def lower(text: str | None) -> str:
    """The text with ASCII letters in lower case, as SQLite's function of that name."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text or "")
