"""Filters of samples: choices among values, ranges of figures, and texts, as conditions in SQL."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from services.aggregator.index import search
from services.aggregator.index.search import PLACES, Place

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
Choice = tuple[str | None, ...]


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


EVERY = SampleFilter()


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
        where.append("flipped > 0" if wanted.flipped else "flipped = 0")
    if wanted.group is not None:
        where.append("failure_id = ?")
        values.append(wanted.group)
    if wanted.q:
        where.append("(instr(lower(problem_id), ?) OR instr(lower(detail), ?))")
        values += [lower(wanted.q)] * 2
    if wanted.text:
        found, sought = search.condition(run_id, wanted.text, wanted.places)
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
