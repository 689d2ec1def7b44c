"""Layouts of public data sets: how a row becomes a problem."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

from services.data.config import DateRange
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
    if it is the prompt. ``wrong`` are programs that are known to be wrong. ``place`` is that in the
    source; empty for a prepared problem.
    """

    problem: Problem
    solutions: tuple[Solution, ...] = ()
    statement: str = ""
    wrong: tuple[Solution, ...] = ()
    place: str = ""

    @property
    def problem_id(self) -> str:
        return self.problem.problem_id


@dataclass(frozen=True, slots=True)
class Dropped:
    """A valid row that cannot become a problem, with the reason."""

    place: str
    problem_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The problem of a row, with the layout's own name of data set and split.

    ``sandbox_id`` is by default the problem's own id. ``solutions`` are right programs, as pairs of
    language and code, best language first; ``wrong`` are programs known to be wrong. ``dropped`` is
    the reason why the row is no problem.
    """

    dataset: str
    problem_id: str
    prompt: str
    data_source: str
    sandbox_dataset: str
    ground_truth: dict[str, object] | str
    sandbox_id: str = ""
    split: str = "test"
    difficulty: str = "unknown"
    info: ProblemInfo | str = ""
    solutions: Iterable[tuple[str, str | None]] = ()
    wrong: Iterable[tuple[str, str | None]] = ()
    statement: str = ""
    dropped: str = ""


# Flags of the options that only some layouts accept.
_FLAGS = {
    "ids": "--ids",
    "contest_dates": "contest_dates",
    "include_generated": "--include-generated",
}


class StrictPart(BaseModel):
    """Required fields with exact types; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class LayoutRow(StrictPart):
    """A row of one public data set.

    Attributes:
        set_name: Name of the data set in messages.
        accepts: The option that it accepts beside ``name``, ``split`` and ``solutions``.
        on_request: Large fields, and the option that needs them.
        splits: Allowed splits; empty for any.
        repeats_names: Whether different problems have one name; a hash of the text tells them
            apart.
    """

    set_name: ClassVar[str]
    accepts: ClassVar[str] = ""
    on_request: ClassVar[Mapping[str, str]] = {}
    splits: ClassVar[tuple[str, ...]] = ()
    repeats_names: ClassVar[bool] = False

    def draft(self, place: str, options: Options) -> Draft | None:
        """Make the row's problem; None if the options do not select it."""
        raise NotImplementedError

    @classmethod
    def columns(cls, options: Options) -> tuple[str, ...]:
        """Name the fields that are read, so that a source can skip the others."""
        names: list[str] = []
        for name, info in cls.model_fields.items():
            if getattr(options, cls.on_request.get(name, ""), True):
                alias = info.validation_alias
                names += map(str, alias.choices) if isinstance(alias, AliasChoices) else [name]
        return tuple(names)

    @classmethod
    def read(cls, rows: Rows, options: Options) -> Iterator[Record | Dropped]:
        """Convert rows into problems, in order.

        Raises:
            DataError: While iterating: an option or a row is invalid, no row is selected, or the
                rows are of several data sets.
        """
        cls._check(options)
        dataset = ""
        digests: dict[str, str] = {}
        for place, fields in rows:
            draft = cls._parse(place, fields).draft(place, options)
            if draft is None:
                continue
            if dataset not in ("", draft.dataset) and not options.name:
                cause = f"data set {draft.dataset!r}, but earlier rows are of {dataset!r}"
                raise data_error(place, f"{cause}; split the file or set one name with --name")
            dataset = draft.dataset
            problem_id = draft.problem_id
            if cls.repeats_names:
                problem_id = _unique_id(place, draft, digests)
            if draft.dropped:
                yield Dropped(place, problem_id, draft.dropped)
            else:
                yield _record(place, draft, problem_id, options)
        if not dataset and (options.ids or options.contest_dates):
            ids = options.ids
            chosen = f"--ids {ids[0]}-{ids[-1]}" if ids else f"the days {options.contest_dates}"
            cause = f"no problem is in {chosen}; choose another range"
            raise data_error(options.source or cls.set_name, cause)

    @classmethod
    def _check(cls, options: Options) -> None:
        for name, flag in _FLAGS.items():
            if getattr(options, name) and name != cls.accepts:
                raise DataError(f"{flag} does not apply to {cls.set_name}; remove the option")
        if cls.splits and options.split and options.split not in cls.splits:
            cause = f"--split {options.split!r} is not a split of {cls.set_name}"
            raise DataError(f"{cause}; choose one of {', '.join(cls.splits)}")

    @classmethod
    def _parse(cls, place: str, fields: Fields) -> Self:
        """Validate a row, in which None is an absent field."""
        try:
            present = {name: value for name, value in fields.items() if value is not None}
            return cls.model_validate(present)
        except ValidationError as error:
            cause = f"{describe(error)}; check that the file has this layout"
            raise data_error(place, cause) from None


def _unique_id(place: str, draft: Draft, digests: dict[str, str]) -> str:
    if not draft.problem_id:
        raise data_error(place, "name is empty; give the problem a name")
    digest = sha256(draft.prompt)
    if digests.setdefault(draft.problem_id, digest) == digest:
        return draft.problem_id
    return f"{draft.problem_id} #{digest[:8]}"


def _record(place: str, draft: Draft, problem_id: str, options: Options) -> Record:
    """Build a problem and check that it can be stored and judged."""
    truth, info = draft.ground_truth, draft.info
    if isinstance(info, ProblemInfo):
        values = info.model_dump(exclude_defaults=True)
        info = json.dumps(values, ensure_ascii=False) if values else ""
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
        "sandbox_id": problem_id
        if draft.sandbox_id in ("", draft.problem_id)
        else draft.sandbox_id,
        "extra_info": info,
    }
    if not fields["split"]:
        raise data_error(place, f"problem {problem_id!r} is in no split; set one with --split")
    try:
        for text in fields.values():
            text.encode("utf-8")
        parse_ground_truth(fields["ground_truth"])
        problem = Problem(**fields, prompt_sha256=sha256(canonicalize(draft.prompt)))
    except ValidationError as error:
        raise data_error(place, f"problem {problem_id!r}: {describe(error)}") from None
    except ValueError as error:
        raise data_error(place, f"problem {problem_id!r} cannot be used: {error}") from None
    solutions, wrong = (
        tuple(islice(_programs(pairs), options.solutions))
        for pairs in (draft.solutions, draft.wrong)
    )
    return Record(problem, solutions, draft.statement, wrong, place)


def _programs(pairs: Iterable[tuple[str, str | None]]) -> Iterator[Solution]:
    return (Solution(language, code) for language, code in pairs if code and code.strip())
