"""Overlaps that somebody has looked at and found to be none, or not to matter."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import fsspec
import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from services.data.overlap.pairs import Overlap
from shared.json_lines import read_json_lines
from shared.reading import data_error, reading
from shared.schemas import describe

_Name = Annotated[str, StringConstraints(strict=True, pattern=r"(?s)^[^/\s]+/.*\S")]
_Reason = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]


class Exempted(BaseModel):
    """A reviewed pair. ``a`` and ``b`` are ``dataset/problem_id``, in either order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: _Name
    b: _Name
    reason: _Reason

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.a, self.b))


@dataclass(frozen=True, slots=True)
class AllowedOverlap:
    """An overlap that is known, and why it may be."""

    overlap: Overlap
    reason: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Overlaps told apart. ``stale``: exceptions for pairs that do not overlap (any more)."""

    open: tuple[Overlap, ...]
    allowed: tuple[AllowedOverlap, ...]
    stale: tuple[Exempted, ...]


@dataclass(frozen=True, slots=True)
class Allowed:
    """A list of reviewed exceptions."""

    entries: tuple[Exempted, ...] = ()

    def split(self, overlaps: Sequence[Overlap]) -> Reviewed:
        """Tell the overlaps that are excepted from those that are not."""
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


def load_allowed(path: str) -> Allowed:
    """Read exceptions from a list in YAML, or from JSONL where the name says so.

    Args:
        path: A local path or any fsspec URL.

    Raises:
        DataError: The file or an entry cannot be used; names both.
    """
    places: dict[frozenset[str], str] = {}
    entries: list[Exempted] = []
    for place, fields in _entries(path):
        entry = _parse(place, fields)
        if entry.pair in places:
            cause = f"the same pair as {places[entry.pair]}; keep one of them"
            raise data_error(place, cause)
        places[entry.pair] = place
        entries.append(entry)
    return Allowed(tuple(entries))


def _pair(overlap: Overlap) -> frozenset[str]:
    return frozenset((overlap.a.name, overlap.b.name))


def _parse(place: str, fields: object) -> Exempted:
    try:
        return Exempted.model_validate(fields)
    except ValidationError as error:
        needed = "an entry is {a: dataset/problem_id, b: dataset/problem_id, reason: why}"
        raise data_error(place, f"{describe(error)}; {needed}") from None


def _entries(path: str) -> Iterator[tuple[str, object]]:
    if path.endswith((".jsonl", ".jsonl.gz")):
        yield from ((f"{path}:{line}", fields) for line, fields in read_json_lines(path))
        return
    for number, fields in enumerate(_yaml_list(path), start=1):
        yield f"{path}: entry {number}", fields


def _yaml_list(path: str) -> list[object]:
    with reading(path), fsspec.open(path, "rb") as file:
        try:
            document = yaml.safe_load(file)
        except (yaml.YAMLError, RecursionError) as error:
            raise data_error(path, f"not YAML ({error}); mend it there") from None
    if document is not None and not isinstance(document, list):
        raise data_error(path, "not a list; write each exception as '- {a: …, b: …, reason: …}'")
    return document or []
