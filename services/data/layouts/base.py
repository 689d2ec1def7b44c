"""What the public layouts have in common."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.ids import IdRanges
from services.data.rows.base import Rows
from shared.canonical import canonicalize
from shared.errors import DataError
from shared.reading import data_error
from shared.schemas import Problem, ProblemInfo, describe, parse_ground_truth, sha256


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants other than a layout's defaults; each layout names what it takes.

    ``name`` and ``split`` replace the data set's name and split, ``ids`` selects problems by
    number, ``include_generated`` adds generated tests. At most ``solutions`` reference solutions
    of a problem are kept. ``source`` names all the rows together in an error.
    """

    name: str | None = None
    split: str | None = None
    ids: IdRanges | None = None
    include_generated: bool = False
    solutions: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """A reference solution: a whole program or function, in ``python`` or ``cpp``."""

    language: str
    code: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A problem with its reference solutions, and the place in the source that it came from."""

    place: str
    problem: Problem
    solutions: tuple[Solution, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A sound row that makes no problem, and why."""

    place: str
    problem_id: str
    reason: str


class Layout(Protocol):
    """Gives the rows of one public layout their meaning."""

    def columns(self, options: Options) -> tuple[str, ...] | None:
        """The fields that ``read`` looks at; None where it needs whatever there is."""

    def read(self, rows: Rows, options: Options) -> Iterator[Imported | Dropped]:
        """Make problems of rows, in their order.

        Raises:
            DataError: While iterating: the options or a row cannot be used.
        """


class LayoutRow(BaseModel):
    """Base of a layout's rows: the needed fields with their exact types, others ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


RowT = TypeVar("RowT", bound=LayoutRow)


def parse_row(kind: type[RowT], place: str, fields: dict[str, Any]) -> RowT:
    """Check one row of a source.

    Raises:
        DataError: A field is missing or has another type; names place and field.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise data_error(place, f"{describe(error)}; see that the file has this layout") from None


def make_problem(
    place: str,
    *,
    dataset: str,
    split: str,
    problem_id: str,
    prompt: str,
    data_source: str,
    ground_truth: dict[str, Any] | str,
    sandbox_dataset: str,
    sandbox_id: str,
    difficulty: str = "unknown",
    extra_info: str = "",
) -> Problem:
    """Make a problem and check that it can be stored and judged.

    Raises:
        DataError: It cannot; names place, problem and cause.
    """
    if not isinstance(ground_truth, str):
        ground_truth = json.dumps(ground_truth, ensure_ascii=False)
    fields = {
        "dataset": dataset,
        "split": split,
        "problem_id": problem_id,
        "prompt": prompt,
        "data_source": data_source,
        "difficulty": difficulty,
        "sandbox_dataset": sandbox_dataset,
        "sandbox_id": sandbox_id,
        "extra_info": extra_info,
    }
    try:
        _check_utf8(fields)
        parse_ground_truth(ground_truth)
        return Problem(
            **fields, ground_truth=ground_truth, prompt_sha256=sha256(canonicalize(prompt))
        )
    except ValidationError as error:
        raise data_error(place, f"problem {problem_id!r}: {describe(error)}") from None
    except ValueError as error:
        raise data_error(place, f"problem {problem_id!r} cannot be used: {error}") from None


def info_text(info: ProblemInfo) -> str:
    """The ``extra_info`` of a problem: what is known, and nothing of what is not."""
    known = info.model_dump(exclude_defaults=True)
    return json.dumps(known, ensure_ascii=False) if known else ""


def make_solutions(
    candidates: Iterable[tuple[str, str | None]], limit: int
) -> tuple[Solution, ...]:
    """The first ``limit`` of these (language, code); what is blank or missing is none."""
    found = (Solution(language, code) for language, code in candidates if code and code.strip())
    return tuple(islice(found, limit))


def refuse(kind: str, options: Options) -> None:
    """Refuse options that a layout has no use for, rather than ignore them.

    Raises:
        DataError: One of ``ids`` and ``include_generated`` is set.
    """
    if options.ids is not None:
        raise DataError(f"--ids selects MBPP's numbers, {kind} has none; leave it out")
    if options.include_generated:
        raise DataError(f"--include-generated is for CodeContests, not {kind}; leave it out")


def _check_utf8(fields: dict[str, str]) -> None:
    for name, text in fields.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has half a surrogate pair at character {error.start}"
            ) from None
