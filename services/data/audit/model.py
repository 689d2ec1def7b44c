"""What the audit report says, before it is text."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from services.data.config import ChecksConfig
from services.data.overlap.allow import AllowedOverlap
from services.data.overlap.pairs import Overlap

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetAudit:
    """One data set as it was published.

    ``rows`` counts what the source had; ``dropped``, ``duplicates`` and ``findings`` are the
    entries of the lists beside the manifest; ``verified``: its reference solutions were judged.
    """

    name: str
    split: str
    role: str
    source: str
    revision: str
    version: str
    licence: str
    rows: int
    problem_ids: tuple[str, ...]
    dropped: tuple[Entry, ...]
    duplicates: tuple[Entry, ...]
    findings: tuple[Entry, ...]
    quality: Mapping[str, int]
    verified: bool
    file: str

    @property
    def problems(self) -> int:
        return len(self.problem_ids)

    @property
    def removed(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.duplicates if entry["removed"])

    @property
    def near_copies(self) -> tuple[Entry, ...]:
        """Near duplicates that were left in."""
        return tuple(entry for entry in self.duplicates if not entry["removed"])


@dataclass(frozen=True, slots=True)
class Pair:
    """Two data sets: how many pairs of problems overlap in which way, and how many are reviewed."""

    first: str
    second: str
    kinds: Mapping[str, int]
    open: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that the report shows.

    ``overlaps`` are between data sets and not reviewed; each is a reason not to go on.
    """

    datasets: tuple[DatasetAudit, ...]
    overlaps: tuple[Overlap, ...]
    reviewed: tuple[AllowedOverlap, ...]
    stale: tuple[str, ...]
    checks: ChecksConfig
    versions: Mapping[str, str]
    commands: tuple[str, ...]

    @property
    def pairs(self) -> list[Pair]:
        """Every two data sets, also those without an overlap."""
        names = [dataset.name for dataset in self.datasets]
        return [self._pair(first, second) for first, second in combinations(names, 2)]

    @property
    def leaks(self) -> list[Pair]:
        """Training sets against evaluation sets."""
        roles = {dataset.name: dataset.role for dataset in self.datasets}
        return [
            pair
            for pair in self.pairs
            if {roles[pair.first], roles[pair.second]} == {"train", "eval"}
        ]

    def _pair(self, first: str, second: str) -> Pair:
        def of_the_two(overlap: Overlap) -> bool:
            return {overlap.a.dataset, overlap.b.dataset} == {first, second}

        found = [one for one in self.overlaps if of_the_two(one)]
        allowed = [one.overlap for one in self.reviewed if of_the_two(one.overlap)]
        kinds: dict[str, int] = {}
        for one in (*found, *allowed):
            for kind in one.kinds:
                kinds[kind] = kinds.get(kind, 0) + 1
        return Pair(first, second, kinds, len(found), len(allowed))
