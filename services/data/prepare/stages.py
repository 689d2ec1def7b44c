"""Stages: fetch, standardize and audit one data set, and publish its files later."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from services.data.config import DatasetConfig, HubSource, LocalSource, PrepareConfig, SandboxSource
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options, Record
from services.data.manifests import (
    Duplicate,
    ManifestLine,
    QualityEntry,
    manifest_line,
    write_list,
    write_manifest,
)
from services.data.quality import audit_problem
from services.data.records import read_records, writing_dataset
from services.data.rows import Rows, hub, local, sandbox_fusion
from shared.errors import data_error
from shared.redaction import redact_address
from shared.schemas import Problem, QualityFinding, quality_text


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
        return f"{source.kind}: {name}" + (f", contests {dates}" if dates else "")

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
    with writing_dataset(stage.data) as writer:
        places: dict[str, tuple[str, str]] = {}
        first: dict[str, str] = {}
        for row in layout.read(rows, options):
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
                duplicate = (name, row.problem_id, row.place, first[digest], "exact", 1.0, True)
                stage.duplicates.append(Duplicate(*duplicate))
            else:
                first[digest] = row.problem_id
                findings = audit_problem(row.problem).items()
                stage.findings += [QualityEntry(row.problem_id, *entry) for entry in findings]
                writer.add(row)
    return stage


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
    stage.lines = [manifest_line(problem, **source) for problem in _write_data(data, stage)]
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
    return source.path if isinstance(source, LocalSource) else redact_address(source.url)


def _write_data(path: str, stage: Stage) -> Iterator[Problem]:
    """Write the parquet file with all findings, and yield its problems as written."""
    findings: defaultdict[str, set[QualityFinding]] = defaultdict(set)
    for entry in stage.findings:
        findings[entry.problem_id].add(entry.finding)
    with writing_dataset(path) as writer:
        for record in read_records(stage.data):
            problem = record.problem
            quality = quality_text(findings[problem.problem_id])
            problem = problem.model_copy(update={"quality": quality})
            writer.add(replace(record, problem=problem))
            yield problem
