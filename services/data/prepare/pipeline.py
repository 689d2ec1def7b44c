"""Preparation of data sets: stage, check, publish, report, and write the lock last."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined

from services.data import overlap as find
from services.data.config import (
    DatasetConfig,
    HubSource,
    LocalSource,
    PrepareConfig,
    SandboxSource,
    families_of,
)
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options, Record
from services.data.overlap import Overlap, Reviewed, find_overlaps, load_allowlist, review
from services.data.prepare.verification import verify
from services.data.quality import audit_problem
from services.data.records import (
    Duplicate,
    ManifestLine,
    QualityEntry,
    Verifier,
    manifest_line,
    read_records,
    replace_text,
    text_of,
    write_list,
    write_lock,
    write_manifest,
    write_records,
)
from services.data.rows import Rows, hub, local, sandbox_fusion
from shared.datasets import CANONICAL_VERSION
from shared.errors import data_error
from shared.manifests import DataRole
from shared.redaction import redact_address
from shared.schemas import QualityFinding, quality_text
from shared.versions import release

OVERLAPS, REPORT = "overlaps.jsonl", "audit_report.md"
# Entries shown per list; the list files have all of them.
SHOWN = 50


@dataclass(slots=True)
class Stage:
    """A standardized data set, and what the checks found in it.

    ``data`` is its parquet file before publication, ``revision`` the version of the source: hub
    commit, hash of local files, or empty. ``rows`` counts the source's rows. ``lines`` are the
    manifest of what was published; ``verified`` means that its reference solutions were judged.
    """

    name: str
    dataset: DatasetConfig
    data: str
    revision: str
    rows: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    findings: list[QualityEntry] = field(default_factory=list)
    verified: bool = False
    lines: list[ManifestLine] = field(default_factory=list)

    @property
    def split(self) -> str:
        return ", ".join(sorted({line.split for line in self.lines}))

    @property
    def source(self) -> str:
        """Kind and name of the source, and the days that are selected."""
        source, dates = self.dataset.source, self.dataset.contest_dates
        name = source.dataset if isinstance(source, SandboxSource) else source.path
        place = f"{source.kind}: {redact_address(name)}"
        return place + (f", contests {dates}" if dates else "")

    @property
    def problem_ids(self) -> tuple[str, ...]:
        return tuple(line.problem_id for line in self.lines)

    @property
    def problems(self) -> int:
        return len(self.lines)

    @property
    def removed(self) -> tuple[Duplicate, ...]:
        return tuple(entry for entry in self.duplicates if entry.removed)

    @property
    def quality(self) -> dict[str, int]:
        """Number of problems by finding."""
        counts = Counter(word for line in self.lines for word in line.quality.split(","))
        return {word: counts[word] for word in ("ok", *QualityFinding) if counts[word]}


def stage_dataset(
    name: str, dataset: DatasetConfig, raw: Path, advance: Callable[[], None], *, offline: bool
) -> Stage:
    """Read a data set and write its stage.

    Of exact duplicates, by the hash of the canonical prompt, only the first is kept.

    Args:
        name: Name of the data set.
        dataset: Its source and options.
        raw: Folder of the stages.
        advance: Called for every row.
        offline: Never use the network.

    Raises:
        DataError: The source cannot be used, or different problems have one id.
    """
    options = Options(
        name=name,
        split=dataset.split,
        ids=dataset.numbers,
        contest_dates=dataset.contest_dates,
        include_generated=dataset.generated_tests,
        solutions=dataset.solutions,
        source=name,
    )
    layout = LAYOUTS[dataset.layout]
    columns = layout.columns(options)
    source, revision = dataset.source, ""
    rows: Rows
    if isinstance(source, SandboxSource):
        rows = sandbox_fusion.rows(source, dataset.layout, offline=offline)
    elif isinstance(source, HubSource):
        # A branch may move before its rows are read.
        revision = hub.resolve_revision(source, offline=offline)
        pinned = source.model_copy(update={"revision": revision})
        rows = hub.rows(pinned, columns, offline=offline)
    else:
        revision = local.revision(source.path)
        rows = local.rows(source.path, columns)
    stage = Stage(name, dataset, str(raw / f"{name}.parquet"), revision)
    write_records(stage.data, _kept(stage, layout.read(rows, options), advance))
    return stage


def _kept(
    stage: Stage, rows: Iterable[Record | Dropped], advance: Callable[[], None]
) -> Iterator[Record]:
    """Yield the problems of a data set, and list in its stage what the checks find."""
    places: dict[str, tuple[str, str]] = {}
    first: dict[str, str] = {}
    for row in rows:
        stage.rows += 1
        advance()
        digest = row.problem.prompt_sha256 if isinstance(row, Record) else ""
        place, other = places.setdefault(row.problem_id, (row.place, digest))
        # A repeated problem is listed as a duplicate; different problems need different ids.
        if place != row.place and (digest != other or not digest):
            cause = f"another problem {row.problem_id!r} is at {place}"
            raise data_error(row.place, f"{cause}; give one of them another id")
        if isinstance(row, Dropped):
            stage.dropped.append(row)
        elif digest in first:
            duplicate = (stage.name, row.problem_id, row.place, first[digest], "exact", 1.0, True)
            stage.duplicates.append(Duplicate(*duplicate))
        else:
            first[digest] = row.problem_id
            findings = audit_problem(row.problem).items()
            stage.findings += [QualityEntry(row.problem_id, *entry) for entry in findings]
            yield row


# Publication


def publish(config: PrepareConfig, stage: Stage) -> list[str]:
    """Write a data set's files, each atomically: parquet, manifest and lists.

    Returns:
        Their paths, which the lock covers.

    Raises:
        DataError: A file cannot be written.
    """
    name, folder, dataset = stage.name, config.manifests, stage.dataset
    data, manifest = f"{config.output}/{name}.parquet", f"{folder}/{name}.jsonl"
    source = {
        "version": dataset.version or stage.revision,
        "source_url": _source_url(dataset),
        "revision": stage.revision,
        "licence": dataset.licence,
        "role": dataset.role,
    }
    write_records(data, _with_findings(stage, source))
    write_manifest(manifest, stage.lines)
    lists = {
        f"{folder}/duplicates_{name}.jsonl": map(asdict, stage.duplicates),
        f"{folder}/dropped_{name}.jsonl": map(asdict, stage.dropped),
        f"{folder}/quality_{name}.jsonl": map(asdict, stage.findings),
    }
    for path, entries in lists.items():
        write_list(path, entries)
    return [data, manifest, *lists]


def _source_url(dataset: DatasetConfig) -> str:
    """Return the configured URL of the source, or derive it from the source."""
    source = dataset.source
    if dataset.source_url:
        return redact_address(dataset.source_url)
    if isinstance(source, HubSource):
        return f"https://huggingface.co/datasets/{source.path}"
    return redact_address(source.path if isinstance(source, LocalSource) else source.url)


def _with_findings(stage: Stage, source: Mapping[str, str]) -> Iterator[Record]:
    """Yield the staged problems with all findings, and collect their lines of the manifest."""
    findings: defaultdict[str, set[QualityFinding]] = defaultdict(set)
    for entry in stage.findings:
        findings[entry.problem_id].add(entry.finding)
    for record in read_records(stage.data):
        quality = quality_text(findings[record.problem_id])
        problem = record.problem.model_copy(update={"quality": quality})
        stage.lines.append(manifest_line(problem, **source))
        yield replace(record, problem=problem)


# Audit report, as Markdown


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
        """Pairs of a training set, which is the first, and an evaluation set."""
        training, evaluation = (
            [stage.name for stage in self.datasets if stage.dataset.role is role]
            for role in (DataRole.TRAIN, DataRole.EVAL)
        )
        return [self._pair(first, second) for first in training for second in evaluation]

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
    text = environment.get_template(f"{REPORT}.j2").render(
        audit=audit, shown=SHOWN, find=find, findings=list(QualityFinding)
    )
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


# Pipeline


class PrepareProgress(Protocol):
    """Progress display: ``begin`` starts a step, ``advance`` counts its items, such as rows."""

    def begin(self, step: str) -> None: ...

    def advance(self) -> None: ...

    def end(self, result: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """Result of a preparation; do not use the data while ``audit.overlaps`` has entries."""

    audit: Audit
    lock: str
    report: str


def prepare(
    config: PrepareConfig,
    progress: PrepareProgress,
    *,
    offline: bool = False,
    verifier: Verifier | None = None,
    commands: Sequence[str] = (),
) -> Prepared:
    """Prepare all data sets. Files of the hub are downloaded once, into its cache.

    Nothing is published until everything is read and checked. The lock is written last, so a run
    refuses data whose publication was interrupted.

    Args:
        config: The data sets and checks.
        progress: Receives the progress.
        offline: Never use the network.
        verifier: Judges reference solutions; None skips that.
        commands: Commands that reproduce the data, for the report.

    Raises:
        DataError: A source cannot be used, or a file cannot be written.
    """
    exemptions = load_allowlist(config.allow)
    stages: list[Stage] = []
    for name, dataset in config.datasets.items():
        if isinstance(dataset.source, LocalSource):
            outputs = [f"{folder}/{name}.parquet" for folder in (config.raw, config.output)]
            local.check_kept(dataset.source.path, [*outputs, f"{config.manifests}/{name}.jsonl"])
        progress.begin(name)
        stage = stage_dataset(name, dataset, Path(config.raw), progress.advance, offline=offline)
        progress.end(f"{stage.rows:,} rows")
        stages.append(stage)
    texts = [text_of(record) for stage in stages for record in read_records(stage.data)]
    progress.begin(f"comparing {len(texts):,} problems")
    overlaps = find_overlaps(texts)
    progress.end(f"{len(overlaps):,} pairs are alike")
    for stage in stages:
        stage.duplicates += _near_duplicates(stage, overlaps)
        if verifier is not None:
            stage.findings += verify(list(read_records(stage.data)), verifier)
            stage.verified = True
    families = families_of(config.datasets)
    reviewed = review([pair for pair in overlaps if pair.leaks(families)], exemptions)
    files = [path for stage in stages for path in publish(config, stage)]
    # No library versions: the same data must give the same report on every machine.
    versions = {"plumbline": release(), "canonical form": CANONICAL_VERSION}
    audit = Audit(tuple(stages), reviewed, versions, tuple(commands))
    listed = f"{config.manifests}/{OVERLAPS}"
    write_list(listed, (pair.entry() for pair in (*reviewed.open, *reviewed.allowed)))
    report = write_report(config.manifests, audit)
    return Prepared(audit, write_lock(config.manifests, [*files, listed]), report)


def _near_duplicates(stage: Stage, overlaps: Sequence[Overlap]) -> list[Duplicate]:
    """List near duplicates within a data set, in its order; none is removed."""
    records = read_records(stage.data)
    order = {record.problem_id: number for number, record in enumerate(records)}
    duplicates = []
    for pair in overlaps:
        if pair.datasets == {stage.name}:
            first, second = sorted((pair.a.problem_id, pair.b.problem_id), key=order.__getitem__)
            kinds, similarity = ", ".join(pair.findings), max(pair.findings.values())
            values = (stage.name, second, "", first, kinds, similarity, False)
            duplicates.append(Duplicate(*values))
    return sorted(
        duplicates, key=lambda entry: (order[entry.problem_id], order[entry.duplicate_of])
    )
