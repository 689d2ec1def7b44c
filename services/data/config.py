"""Configuration of `plumb data prepare`: sources, layouts and checks (`configs/data.yaml`)."""

import re
from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shared.errors import DataError
from shared.manifests import DataRole
from shared.schemas import describe

# A data set's name becomes part of file names and metric keys.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def check_name(name: str) -> None:
    """Check that a data set's name can be part of file names and metric keys.

    Raises:
        ValueError: It has unsupported characters.
    """
    if not _NAME.fullmatch(name):
        allowed = "letters, digits, '.', '_' and '-'"
        raise ValueError(f"the data set's name {name!r} may only have {allowed}")


class LayoutKind(StrEnum):
    """Supported layouts, by their names in commands and configuration."""

    HUMANEVAL = "humaneval"
    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    CODE_CONTESTS_PLUS = "code_contests_plus"
    JSONL = "jsonl"
    LIVECODEBENCH = "livecodebench"
    HUMANEVAL_PLUS = "humaneval_plus"
    MBPP_PLUS = "mbpp_plus"
    MULTIPL_E = "multipl_e"


def parse_ids(text: str) -> range:
    """Parse a number or a range of numbers with both ends included, such as ``11-210``.

    Raises:
        DataError: The text has another form, or the range ends before it begins.
    """
    match = _ID_RANGE.fullmatch(text.strip())
    if match is None:
        raise DataError(f"--ids {text!r} is not a number or a range; write 11-210")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise DataError(f"--ids {text!r}: the range ends before it begins; swap its ends")
    return range(first, last + 1)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DateRange(_Section):
    """Days selected by ``contest_dates``: both ends included, and an end left out is open."""

    since: date | None = None
    until: date | None = None

    def __contains__(self, day: date) -> bool:
        return (self.since or day) <= day <= (self.until or day)

    def __str__(self) -> str:
        ends = (("since", self.since), ("until", self.until))
        return " ".join(f"{word} {day}" for word, day in ends if day)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.since and not self.until:
            raise ValueError("name a day for since, until or both")
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"until {self.until} is before since {self.since}; swap them")
        return self


def parse_dates(since: str | None, until: str | None) -> DateRange | None:
    """Parse ``--since`` and ``--until``; None if neither is given.

    Raises:
        DataError: One is not a date, or they are in the wrong order.
    """
    if since is None and until is None:
        return None
    try:
        return DateRange.model_validate({"since": since, "until": until})
    except ValidationError as error:
        raise DataError(f"--since and --until: {describe(error)}; write 2025-01-31") from None


class LocalSource(_Section):
    """A published file or a folder of files: JSONL, parquet or Arrow."""

    kind: Literal["local"]
    path: str = Field(min_length=1)


class HubSource(_Section):
    """A data set of the Hugging Face hub at one revision: a commit, branch or tag.

    ``name`` selects one of the data set's configurations.
    """

    kind: Literal["huggingface"]
    path: str = Field(min_length=1)
    revision: str = Field(min_length=1)
    split: str = Field(min_length=1)
    name: str | None = None


class SandboxSource(_Section):
    """A data set on a SandboxFusion server; ``dataset`` is its name there."""

    kind: Literal["sandbox_fusion"]
    url: str = "http://localhost:8080"
    dataset: str = Field(min_length=1)


AnySource = Annotated[LocalSource | HubSource | SandboxSource, Field(discriminator="kind")]


class DatasetConfig(_Section):
    """One data set to prepare; its key is its name.

    Attributes:
        role: ``train`` for training data, ``eval`` for evaluation data.
        ids: Problem numbers to keep, such as ``11-210`` (MBPP).
        contest_dates: Days of the contests to keep, ``{since: 2024-08-01, until: 2025-01-31}``
            (LiveCodeBench).
        family: Sets with the same family are editions or translations of one set; the check for
            overlaps does not compare them with each other.
        generated_tests: Add the generated tests (CodeContests) to the public and private ones.
        solutions: Number of reference solutions kept per problem, for the checks.
        version: Recorded in the manifest, like ``licence`` and ``source_url``.
    """

    layout: LayoutKind
    source: AnySource
    split: str | None = None
    role: DataRole = DataRole.EVAL
    ids: str | None = None
    contest_dates: DateRange | None = None
    family: str = ""
    generated_tests: bool = False
    solutions: int = Field(default=3, ge=0)
    version: str = ""
    licence: str = ""
    source_url: str = ""

    @field_validator("ids")
    @classmethod
    def _ranges(cls, ids: str | None) -> str | None:
        if ids is not None:
            try:
                parse_ids(ids)
            except DataError as error:
                raise ValueError(str(error)) from None
        return ids

    @property
    def numbers(self) -> range | None:
        return parse_ids(self.ids) if self.ids else None


class PrepareConfig(_Section):
    """Data sets, and folders for parquet (``output``), ``manifests`` and fetched rows (``raw``).

    The first two may be any fsspec URL.

    ``verify`` has ``key=value`` overrides for the runs that judge reference solutions; ``allow`` is
    a file of reviewed overlaps.
    """

    datasets: dict[str, DatasetConfig] = Field(min_length=1)
    output: str = "data/eval"
    manifests: str = "data_manifests"
    raw: str = "data/raw"
    verify: list[str] = Field(default_factory=list)
    allow: str | None = None

    @field_validator("output", "manifests")
    @classmethod
    def _folder(cls, value: str) -> str:
        return value.rstrip("/") or "/"

    @field_validator("raw")
    @classmethod
    def _local(cls, value: str) -> str:
        if "://" in value:
            raise ValueError("the folder of fetched rows is a cache; name a local one")
        return value

    @model_validator(mode="after")
    def _names(self) -> Self:
        for name in self.datasets:
            check_name(name)
        return self


def families_of(datasets: Mapping[str, DatasetConfig]) -> dict[str, str]:
    """Return the family of each data set; one without a family is a family of its own."""
    return {name: dataset.family or name for name, dataset in datasets.items()}
