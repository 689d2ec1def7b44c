"""Audit report of prepared data, as Markdown and as one self-contained HTML page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from services.data.manifests import replace_text
from services.data.overlap import find, near
from services.data.overlap.pairs import AllowedOverlap, Overlap
from services.data.prepare.stages import Stage
from shared.data_roles import DataRole

REPORT = "audit_report"
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
    """Content of the report.

    ``overlaps`` are the unreviewed ones between data sets; resolve them before the data is used.
    """

    datasets: tuple[Stage, ...]
    overlaps: tuple[Overlap, ...]
    reviewed: tuple[AllowedOverlap, ...]
    stale: tuple[str, ...]
    versions: Mapping[str, str]
    commands: tuple[str, ...]

    @property
    def pairs(self) -> list[DatasetPair]:
        """Every pair of data sets, including pairs without an overlap."""
        names = [dataset.name for dataset in self.datasets]
        return [self._pair(first, second) for first, second in combinations(names, 2)]

    @property
    def leaks(self) -> list[DatasetPair]:
        """Pairs of a training set and an evaluation set."""
        roles = {dataset.name: dataset.role for dataset in self.datasets}
        return [
            pair for pair in self.pairs if {roles[pair.first], roles[pair.second]} == set(DataRole)
        ]

    def _pair(self, first: str, second: str) -> DatasetPair:
        def is_between(overlap: Overlap) -> bool:
            return {overlap.a.dataset, overlap.b.dataset} == {first, second}

        found = [one for one in self.overlaps if is_between(one)]
        allowed = [one.overlap for one in self.reviewed if is_between(one.overlap)]
        kinds: dict[str, int] = {}
        for one in (*found, *allowed):
            for kind in one.kinds:
                kinds[kind] = kinds.get(kind, 0) + 1
        return DatasetPair(first, second, kinds, len(found), len(allowed))


def write_report(folder: str, audit: Audit) -> str:
    """Write ``audit_report.md`` and ``audit_report.html``; the same audit gives the same bytes.

    Returns:
        Path of the Markdown report.

    Raises:
        DataError: A report cannot be written.
    """
    environment = _environment()
    for ending in ("html", "md"):
        text = environment.get_template(f"{REPORT}.{ending}.j2").render(audit=audit, shown=SHOWN)
        replace_text(f"{folder}/{REPORT}.{ending}", text)
    return f"{folder}/{REPORT}.md"


def describe_overlap(overlap: Overlap) -> str:
    """List the findings about a pair with their similarities."""
    return ", ".join(f"{found.kind.value} {found.similarity:.2f}" for found in overlap.findings)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("services.data.prepare"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"find": find, "near": near}
    environment.filters |= {
        "cell": _cell,
        "code": _code,
        "described": describe_overlap,
        "digits": lambda number: f"{number:,}",
    }
    return environment


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
