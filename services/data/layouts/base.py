"""Layouts of public data sets: how a row becomes a problem. Each one registers itself by name."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

from services.data.config import DateRange, LayoutKind
from services.data.rows import Fields, Rows
from shared.datasets import canonicalize
from shared.errors import DataError, data_error
from shared.schemas import Problem, ProblemInfo, describe, parse_ground_truth, sha256


@dataclass(frozen=True, slots=True)
class Options:
    """Overrides of a layout's defaults.

    ``name`` and ``split`` replace the data set's name and split, ``ids`` selects problems by
    number, ``contest_dates`` by the day of their contest, ``include_generated`` adds generated
    tests. At most ``solutions`` reference solutions are kept per problem. ``source`` names the data
    set in error messages.
    """

    name: str | None = None
    split: str | None = None
    ids: range | None = None
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
class Record:
    """A problem and its reference solutions.

    ``statement`` is the prompt without the frame around it, such as the tests that it quotes; empty
    if it is the prompt. ``wrong`` are programs that are known to be wrong.
    """

    problem: Problem
    solutions: tuple[Solution, ...] = ()
    statement: str = ""
    wrong: tuple[Solution, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported(Record):
    """A record with its place in the source."""

    place: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A valid row that cannot become a problem, with the reason."""

    place: str
    problem_id: str
    reason: str


class LayoutRow(BaseModel):
    """Base schema of a layout's rows: required fields with exact types; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The problem of a row, with the layout's own name of data set and split.

    ``solutions`` are right programs, as pairs of language and code, best language first; ``wrong``
    are programs known to be wrong. ``dropped`` is the reason why the row is no problem.
    """

    dataset: str
    problem_id: str
    prompt: str
    data_source: str
    sandbox_dataset: str
    sandbox_id: str
    ground_truth: dict[str, object] | str
    split: str = "test"
    difficulty: str = "unknown"
    info: ProblemInfo | str = ""
    solutions: Iterable[tuple[str, str | None]] = ()
    wrong: Iterable[tuple[str, str | None]] = ()
    statement: str = ""
    dropped: str = ""


RowT = TypeVar("RowT", bound=LayoutRow)
# Flags of the options that a layout has to accept.
_FLAGS = {
    "ids": "--ids",
    "contest_dates": "contest_dates",
    "include_generated": "--include-generated",
}


@dataclass(frozen=True, slots=True)
class Layout(Generic[RowT]):
    """Interprets the rows of one public data set.

    Attributes:
        title: Name of the data set in messages.
        row: Schema of its rows.
        draft: Makes the problem of a row; None for a row that the options do not select.
        accepts: Options beside ``name`` and ``solutions`` that it accepts.
        on_request: Large fields, and the option that needs them.
        splits: Allowed splits; empty for any.
        repeats_names: Whether different problems have one name; a hash of the text tells them
            apart.
    """

    title: str
    row: type[RowT]
    draft: Callable[[str, RowT, Options], Draft | None]
    accepts: frozenset[str] = frozenset()
    on_request: Mapping[str, str] = field(default_factory=dict)
    splits: tuple[str, ...] = ()
    repeats_names: bool = False

    def columns(self, options: Options) -> tuple[str, ...]:
        """Name the fields that are read, so that a source can skip the others."""
        names: list[str] = []
        for name, info in self.row.model_fields.items():
            if getattr(options, self.on_request.get(name, ""), True):
                alias = info.validation_alias
                names += map(str, alias.choices) if isinstance(alias, AliasChoices) else [name]
        return tuple(names)

    def read(self, rows: Rows, options: Options) -> Iterator[Imported | Dropped]:
        """Convert rows into problems, in order.

        Raises:
            DataError: While iterating: an option or a row is invalid, no row is selected, or the
                rows are of several data sets.
        """
        self._check(options)
        dataset = ""
        named: dict[str, str] = {}
        for place, fields in rows:
            row = parse_row(self.row, place, fields)
            draft = self.draft(place, row, options)
            if draft is None:
                continue
            if dataset not in ("", draft.dataset) and not options.name:
                cause = f"data set {draft.dataset!r}, but earlier rows are of {dataset!r}"
                raise data_error(place, f"{cause}; split the file or set one name with --name")
            dataset = draft.dataset
            problem_id = draft.problem_id
            if self.repeats_names:
                problem_id = _unique_id(place, draft, named)
            if draft.dropped:
                yield Dropped(place, problem_id, draft.dropped)
            else:
                yield _imported(place, draft, problem_id, options)
        if not dataset and (options.ids or options.contest_dates):
            ids = options.ids
            chosen = f"--ids {ids[0]}-{ids[-1]}" if ids else f"the days {options.contest_dates}"
            cause = f"no problem is in {chosen}; choose another range"
            raise data_error(options.source or self.title, cause)

    def _check(self, options: Options) -> None:
        for name, flag in _FLAGS.items():
            if getattr(options, name) and name not in self.accepts:
                titles = [layout.title for layout in LAYOUTS.values() if name in layout.accepts]
                raise DataError(
                    f"{flag} is for {' and '.join(titles)}, not for {self.title}; remove the option"
                )
        if self.splits and options.split and options.split not in self.splits:
            cause = f"--split {options.split!r} is not a split of {self.title}"
            raise DataError(f"{cause}; choose one of {', '.join(self.splits)}")


LAYOUTS: dict[str, Layout[Any]] = {}


def register(kind: LayoutKind, layout: Layout[Any]) -> None:
    LAYOUTS[kind] = layout


def _unique_id(place: str, draft: Draft, named: dict[str, str]) -> str:
    if not draft.problem_id:
        raise data_error(place, "name is empty; give the problem a name")
    digest = sha256(draft.prompt)
    if named.setdefault(draft.problem_id, digest) == digest:
        return draft.problem_id
    return f"{draft.problem_id} #{digest[:8]}"


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


def _imported(place: str, draft: Draft, problem_id: str, options: Options) -> Imported:
    """Build a problem and check that it can be stored and judged.

    Raises:
        DataError: The problem is invalid; names place, problem and cause.
    """
    truth, info = draft.ground_truth, draft.info
    if isinstance(info, ProblemInfo):
        known = info.model_dump(exclude_defaults=True)
        info = json.dumps(known, ensure_ascii=False) if known else ""
    fields = {
        "dataset": options.name or draft.dataset,
        "split": options.split or draft.split,
        "problem_id": problem_id,
        "prompt": draft.prompt,
        "data_source": draft.data_source,
        "ground_truth": truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False),
        "difficulty": draft.difficulty,
        "sandbox_dataset": draft.sandbox_dataset,
        # An id of the sandbox that is the problem's own is as unique.
        "sandbox_id": problem_id if draft.sandbox_id == draft.problem_id else draft.sandbox_id,
        "extra_info": info,
    }
    if not fields["split"]:
        raise data_error(place, f"problem {problem_id!r} is in no split; set one with --split")
    try:
        _check_utf8(fields)
        parse_ground_truth(fields["ground_truth"])
        problem = Problem(**fields, prompt_sha256=sha256(canonicalize(draft.prompt)))
    except ValidationError as error:
        raise data_error(place, f"problem {problem_id!r}: {describe(error)}") from None
    except ValueError as error:
        raise data_error(place, f"problem {problem_id!r} cannot be used: {error}") from None
    right, wrong = (
        (Solution(name, code) for name, code in programs if code and code.strip())
        for programs in (draft.solutions, draft.wrong)
    )
    most = options.solutions
    chosen, mistaken = tuple(islice(right, most)), tuple(islice(wrong, most))
    return Imported(problem, chosen, draft.statement, mistaken, place)


def _check_utf8(fields: dict[str, str]) -> None:
    for name, text in fields.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            cause = f"{name} has an unpaired surrogate at character {error.start}"
            raise ValueError(cause) from None
