"""Overlapping pairs of problems, and the allowlist of reviewed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import fsspec
import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from services.data.records import ProblemText
from shared.errors import DataError, data_error, reading
from shared.schemas import describe

# More pairs mean that the data sets repeat a few texts; such a list is too long to review.
MAX_PAIRS = 200_000

# Similarity (0 to 1) by the two problems' positions, the smaller one first.
Similarities = dict[tuple[int, int], float]


class OverlapKind(StrEnum):
    """Kind of similarity between two problems.

    The similarity is 1 if exact, the Jaccard index if near, otherwise the share of n-grams.
    """

    EXACT = "exact"
    NEAR = "near"
    PROMPT_NGRAMS = "prompt_ngrams"
    SOLUTION_NGRAMS = "solution_ngrams"


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair of problems, ordered by data set, split and id.

    ``findings`` has the similarity by kind, ``excerpts`` a line of each text around what both have
    in common. ``reviewed`` is the reason of a reviewer who accepted the pair; None if it is open.
    """

    a: ProblemText
    b: ProblemText
    findings: Mapping[OverlapKind, float]
    excerpts: tuple[str, str]
    reviewed: str | None = None

    @property
    def datasets(self) -> set[str]:
        return {self.a.dataset, self.b.dataset}

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.a.name, self.b.name))

    def entry(self) -> dict[str, object]:
        """The entry in the list of overlaps."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "findings": {kind: round(share, 4) for kind, share in self.findings.items()},
            "excerpts": self.excerpts,
            "reviewed": self.reviewed,
        }

    def leaks(self, families: Mapping[str, str]) -> bool:
        """Whether the data sets are of different families (its own name if missing)."""
        return len({families.get(dataset, dataset) for dataset in self.datasets}) > 1


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


# Reviews

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
class Reviewed:
    """Overlaps by review status; ``stale`` are exemptions of pairs that do not overlap."""

    open: tuple[Overlap, ...]
    allowed: tuple[Overlap, ...]
    stale: tuple[Exemption, ...]


def review(overlaps: Sequence[Overlap], exemptions: Sequence[Exemption]) -> Reviewed:
    """Separate the reviewed overlaps from the open ones."""
    reasons = {entry.pair: entry.reason for entry in exemptions}
    reviewed = [replace(overlap, reviewed=reasons.get(overlap.pair)) for overlap in overlaps]
    pairs = {overlap.pair for overlap in overlaps}
    return Reviewed(
        open=tuple(overlap for overlap in reviewed if overlap.reviewed is None),
        allowed=tuple(overlap for overlap in reviewed if overlap.reviewed is not None),
        stale=tuple(entry for entry in exemptions if entry.pair not in pairs),
    )


def load_allowlist(path: str | None) -> list[Exemption]:
    """Read exemptions from a YAML list, a local path or any fsspec URL; none without a path.

    Raises:
        DataError: The file or an entry cannot be used; names file and entry.
    """
    if path is None:
        return []
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
        if entries.setdefault(entry.pair, entry) is not entry:
            raise data_error(place, "the same pair as an earlier entry; keep one of them")
    return list(entries.values())
