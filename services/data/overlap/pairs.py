"""Overlapping pairs of problems, and the allowlist of reviewed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import fsspec
import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from shared.errors import DataError, data_error, reading
from shared.schemas import describe


@dataclass(frozen=True, slots=True, order=True)
class ProblemText:
    """The texts of a problem that are compared: its statement and reference solutions.

    ``prompt`` has no tests that a prompt quotes. ``role`` is ``train`` or ``eval``;
    ``prompt_sha256`` is of the canonical prompt.
    """

    dataset: str
    split: str
    role: str
    problem_id: str
    prompt: str
    prompt_sha256: str
    solutions: tuple[str, ...] = ()


# More pairs mean that the data sets repeat a few texts; such a list is too long to review.
MAX_PAIRS = 200_000

# Similarity (0 to 1) by the two problems' positions, the smaller one first.
Similarities = dict[tuple[int, int], float]


class OverlapKind(StrEnum):
    """Kind of similarity between two problems."""

    EXACT = "exact"
    NEAR = "near"
    PROMPT_NGRAMS = "prompt_ngrams"
    SOLUTION_NGRAMS = "solution_ngrams"


@dataclass(frozen=True, slots=True)
class OverlapSide:
    """One problem of a pair; ``excerpt`` is a line of the text that both have in common."""

    dataset: str
    split: str
    role: str
    problem_id: str
    excerpt: str

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.problem_id}"


@dataclass(frozen=True, slots=True)
class OverlapFinding:
    """One kind of similarity of a pair, and its degree.

    ``similarity`` is 1 if exact, the Jaccard index if near, otherwise the share of n-grams.
    """

    kind: OverlapKind
    similarity: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair of problems, ordered by data set, split and id, and all findings about it."""

    a: OverlapSide
    b: OverlapSide
    findings: tuple[OverlapFinding, ...]

    @property
    def kinds(self) -> tuple[OverlapKind, ...]:
        return tuple(finding.kind for finding in self.findings)

    def leaks(self, families: Mapping[str, str]) -> bool:
        """Whether the problems are of data sets of different families (its own name if missing)."""
        first, second = (families.get(side.dataset, side.dataset) for side in (self.a, self.b))
        return first != second


def check_number(pairs: int, max_pairs: int) -> None:
    """Limit the number of pairs; it explodes if most problems are copies of one another.

    Raises:
        DataError: There are more than ``max_pairs``.
    """
    if pairs > max_pairs:
        raise DataError(
            f"more than {max_pairs:,} pairs of problems are alike; check whether a data set "
            "repeats its prompts, and remove duplicates within each set"
        )


_Name = Annotated[str, StringConstraints(strict=True, pattern=r"(?s)^[^/\s]+/.*\S")]
_Reason = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]


class Exemption(BaseModel):
    """A reviewed pair: ``a`` and ``b`` are ``dataset/problem_id``, in either order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: _Name
    b: _Name
    reason: _Reason

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.a, self.b))


@dataclass(frozen=True, slots=True)
class AllowedOverlap:
    """An overlap that a reviewer accepted, with the reason."""

    overlap: Overlap
    reason: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Overlaps by review status; ``stale`` are exceptions for pairs that no longer overlap."""

    open: tuple[Overlap, ...]
    allowed: tuple[AllowedOverlap, ...]
    stale: tuple[Exemption, ...]


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Reviewed exceptions."""

    entries: tuple[Exemption, ...] = ()

    def split(self, overlaps: Sequence[Overlap]) -> Reviewed:
        """Separate the reviewed overlaps from the open ones."""
        reasons = {entry.pair: entry.reason for entry in self.entries}
        still_open: list[Overlap] = []
        allowed: list[AllowedOverlap] = []
        for overlap in overlaps:
            reason = reasons.get(_pair(overlap))
            if reason is None:
                still_open.append(overlap)
            else:
                allowed.append(AllowedOverlap(overlap, reason))
        used = {_pair(one.overlap) for one in allowed}
        stale = (entry for entry in self.entries if entry.pair not in used)
        return Reviewed(tuple(still_open), tuple(allowed), tuple(stale))


def load_allowlist(path: str) -> Allowlist:
    """Read exceptions from a YAML list, a local path or any fsspec URL.

    Raises:
        DataError: The file or an entry cannot be used; names file and entry.
    """
    with reading(path), fsspec.open(path, "rb") as file:
        try:
            document = yaml.safe_load(file) or []
        except (yaml.YAMLError, RecursionError) as error:
            raise data_error(path, f"not YAML ({error}); fix it") from None
    if not isinstance(document, list):
        raise data_error(path, "not a list; write each exception as '- {a: …, b: …, reason: …}'")
    entries: dict[frozenset[str], Exemption] = {}
    for number, fields in enumerate(document, start=1):
        place = f"{path}: entry {number}"
        try:
            entry = Exemption.model_validate(fields)
        except ValidationError as error:
            needed = "an entry is {a: dataset/problem_id, b: dataset/problem_id, reason: why}"
            raise data_error(place, f"{describe(error)}; {needed}") from None
        if entry.pair in entries:
            raise data_error(place, "the same pair as an earlier entry; keep one of them")
        entries[entry.pair] = entry
    return Allowlist(tuple(entries.values()))


def _pair(overlap: Overlap) -> frozenset[str]:
    return frozenset((overlap.a.name, overlap.b.name))
