"""Audit report of prepared data, as Markdown."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from jinja2 import Environment, PackageLoader, StrictUndefined

from services.data.manifests import replace_text
from services.data.overlap import find
from services.data.overlap.pairs import Overlap, Reviewed
from services.data.prepare.stages import Stage
from shared.manifests import DataRole

REPORT = "audit_report.md"
# Entries shown per list; the list files have all of them.
SHOWN = 50


@dataclass(frozen=True, slots=True)
class DatasetPair:
    """Overlaps between two data sets: number of problem pairs by kind, and by review status."""

    first: str
    second: str
    kinds: Mapping[str, int]
    open: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Audit:
    """Content of the report: the overlaps between data sets have to be resolved or reviewed."""

    datasets: tuple[Stage, ...]
    reviewed: Reviewed
    versions: Mapping[str, str]
    commands: tuple[str, ...]

    @property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The overlaps that nobody reviewed."""
        return self.reviewed.open

    @property
    def pairs(self) -> list[DatasetPair]:
        """Every pair of data sets, including pairs without an overlap."""
        names = [dataset.name for dataset in self.datasets]
        return [self._pair(first, second) for first, second in combinations(names, 2)]

    @property
    def leaks(self) -> list[DatasetPair]:
        """Pairs of a training set and an evaluation set."""
        roles = {stage.name: stage.dataset.role for stage in self.datasets}
        return [
            pair for pair in self.pairs if {roles[pair.first], roles[pair.second]} == set(DataRole)
        ]

    def _pair(self, first: str, second: str) -> DatasetPair:
        unreviewed, allowed = (
            [overlap for overlap in overlaps if overlap.datasets == {first, second}]
            for overlaps in (self.reviewed.open, self.reviewed.allowed)
        )
        between = unreviewed + allowed
        kinds = Counter(kind.value for overlap in between for kind in overlap.findings)
        return DatasetPair(first, second, kinds, len(unreviewed), len(allowed))


def write_report(folder: str, audit: Audit) -> str:
    """Write ``audit_report.md``; the same audit gives the same bytes.

    Returns:
        Its path.

    Raises:
        DataError: The report cannot be written.
    """
    environment = Environment(
        loader=PackageLoader("services.data.prepare"),
        autoescape=False,  # Markdown; see the filters
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": _cell,
        "code": _code,
        "described": describe_overlap,
        "digits": lambda number: f"{number:,}",
    }
    text = environment.get_template(f"{REPORT}.j2").render(audit=audit, shown=SHOWN, find=find)
    path = f"{folder}/{REPORT}"
    replace_text(path, text)
    return path


def describe_overlap(overlap: Overlap) -> str:
    """List the findings about a pair with their similarities."""
    return ", ".join(f"{kind.value} {share:.2f}" for kind, share in overlap.findings.items())


def _cell(value: object) -> str:
    """Escape text for a Markdown table: it can neither end the cell nor start markup."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*\[\]<>|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _code(value: object) -> str:
    """Format text as Markdown's inline code, also within a table."""
    text = " ".join(str(value).split()).replace("|", "¦")
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {text} {fence}" if text else ""
