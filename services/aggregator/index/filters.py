"""Filters of samples: choices among values, ranges of figures, and texts, as conditions in SQL."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from services.aggregator.index import search
from services.aggregator.index.parameters import Bounds, Choices, one_of
from services.aggregator.index.search import PLACES, SHORTEST
from shared.statuses import ExtractionReason, FinalStatus

MIB = 2**20
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
Statuses = Annotated[Choices, one_of(FinalStatus)]
Extractions = Annotated[Choices, one_of(ExtractionReason)]
Places = Annotated[Choices, one_of(PLACES)]


class SampleFilter(BaseModel):
    """Filters of samples, all of which a sample has to match.

    Several values are separated by commas, of which a sample has to have one; `-` stands for an
    unknown value. Ranges are `MIN..MAX`, `MIN..` or `..MAX`, bounds included: times in seconds,
    `memory` in MiB, `prompt_length` in characters. `q` matches parts of problem id and detail,
    `text` parts of the texts named by `in`, by default all. `group` is a failure's `failure_id`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

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
        found, sought = search.condition(run_id, wanted.text, wanted.places or PLACES)
        where.append(found)
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
    return "".join(one.lower() if one.isascii() else one for one in text or "")
