"""Layout interface, and helpers of all layouts: options, row schemas, construction of problems."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.config import DateRange, IdRanges
from services.data.rows import Fields, Rows
from shared.datasets import canonicalize
from shared.errors import DataError, data_error
from shared.schemas import Problem, ProblemInfo, describe, parse_ground_truth, sha256


@dataclass(frozen=True, slots=True)
class Options:
    """Overrides of a layout's defaults; each layout documents which ones it accepts.

    ``name`` and ``split`` replace the data set's name and split, ``ids`` selects problems by
    number, ``contest_dates`` by the day of their contest, ``include_generated`` adds generated
    tests. At most ``solutions`` reference solutions are kept per problem. ``source`` names the data
    set in error messages.
    """

    name: str | None = None
    split: str | None = None
    ids: IdRanges | None = None
    contest_dates: DateRange | None = None
    include_generated: bool = False
    solutions: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """A reference solution: a complete program or function in ``python`` or ``cpp``."""

    language: str
    code: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A problem with its reference solutions and its place in the source.

    ``statement`` is the prompt without the frame around it, such as the tests that it quotes; empty
    if it is the prompt.
    """

    place: str
    problem: Problem
    solutions: tuple[Solution, ...] = ()
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A valid row that cannot become a problem, with the reason."""

    place: str
    problem_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Interprets the rows of one public data set.

    Attributes:
        columns: Names the fields that ``read`` uses, so that a source can skip the others.
        read: Converts rows into problems, in order. Raises DataError while iterating if the
            options or a row are invalid.
    """

    columns: Callable[[Options], tuple[str, ...]]
    read: Callable[[Rows, Options], Iterator[Imported | Dropped]]


class LayoutRow(BaseModel):
    """Base schema of a layout's rows: required fields with exact types; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


RowT = TypeVar("RowT", bound=LayoutRow)


def parse_row(kind: type[RowT], place: str, fields: Fields) -> RowT:
    """Validate one row of a source, in which None is an absent field.

    Raises:
        DataError: A field is missing or has another type; names place and field.
    """
    try:
        return kind.model_validate({k: value for k, value in fields.items() if value is not None})
    except ValidationError as error:
        cause = f"{describe(error)}; check that the file has this layout"
        raise data_error(place, cause) from None


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
    """Build a problem and check that it can be stored and judged.

    Raises:
        DataError: The problem is invalid; names place, problem and cause.
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
    """Serialize the known facts for ``extra_info``; unknown facts are omitted."""
    known = info.model_dump(exclude_defaults=True)
    return json.dumps(known, ensure_ascii=False) if known else ""


def make_solutions(
    candidates: Iterable[tuple[str, str | None]], limit: int
) -> tuple[Solution, ...]:
    """Take the first ``limit`` of these (language, code) pairs, skipping blank or missing code."""
    found = (Solution(language, code) for language, code in candidates if code and code.strip())
    return tuple(islice(found, limit))


def refuse_ids(kind: str, options: Options) -> None:
    """Reject ``--ids`` for a layout whose problems have no numbers.

    Raises:
        DataError: ``ids`` is set.
    """
    if options.ids is not None:
        raise DataError(f"--ids selects MBPP's numbers, but {kind} has none; remove the option")


def refuse_dates(kind: str, options: Options) -> None:
    """Reject ``contest_dates`` for a layout whose problems have no date.

    Raises:
        DataError: ``contest_dates`` is set.
    """
    if options.contest_dates is not None:
        cause = f"contest_dates selects problems of LiveCodeBench, but {kind} has no dates"
        raise DataError(f"{cause}; remove it")


def refuse_generated(kind: str, options: Options) -> None:
    """Reject ``--include-generated`` for a layout without generated tests.

    Raises:
        DataError: ``include_generated`` is set.
    """
    if options.include_generated:
        raise DataError(f"--include-generated is for CodeContests, not {kind}; remove the option")


def _check_utf8(fields: dict[str, str]) -> None:
    for name, text in fields.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has an unpaired surrogate at character {error.start}"
            ) from None
