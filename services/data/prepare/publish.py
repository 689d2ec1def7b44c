"""Publication of a stage: the parquet file that a run reads, its manifest and its lists."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.data.config import HubSource, LocalSource, PrepareConfig
from services.data.manifests import (
    Duplicate,
    Entry,
    ManifestLine,
    QualityEntry,
    manifest_line,
    write_list,
    write_manifest,
)
from services.data.prepare.audit import DatasetAudit
from services.data.prepare.stages import Stage
from services.data.records import Record, read_records, writing_dataset
from shared.redaction import redact_address
from shared.schemas import Problem, QualityFinding, quality_findings, quality_text


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to a stage that result from the checks.

    ``near`` are near duplicates within the data set; ``verified`` are findings from programs that
    were run, None if none were.
    """

    near: Sequence[Duplicate]
    verified: Sequence[QualityEntry] | None

    @property
    def removed(self) -> set[str]:
        return {entry.problem_id for entry in self.near if entry.removed}


@dataclass(frozen=True, slots=True)
class Published:
    """A published data set; the lock covers ``files``."""

    audit: DatasetAudit
    files: tuple[str, ...]


def publish(config: PrepareConfig, stage: Stage, changes: Changes) -> Published:
    """Write a data set's files, each atomically.

    Raises:
        DataError: A file cannot be written.
    """
    data = f"{config.output}/{stage.name}.parquet"
    lines = [_manifest_line(problem, stage) for problem in _write_data(data, stage, changes)]
    manifests = config.manifests
    manifest = f"{manifests}/{stage.name}.jsonl"
    write_manifest(manifest, lines)
    kept = {line.problem_id for line in lines}
    found = (*stage.findings, *(changes.verified or ()))
    findings = tuple(entry for entry in found if entry.problem_id in kept)
    duplicates = (*stage.duplicates, *changes.near)
    dropped = tuple(stage.dropped)
    lists: dict[str, Sequence[Entry]] = {
        "duplicates": duplicates,
        "dropped": dropped,
        "quality": findings,
    }
    paths = [f"{manifests}/{kind}_{stage.name}.jsonl" for kind in lists]
    for path, entries in zip(paths, lists.values(), strict=True):
        write_list(path, entries)
    audit = DatasetAudit(
        name=stage.name,
        split=", ".join(sorted({line.split for line in lines})),
        role=stage.dataset.role,
        source=_source(stage),
        revision=stage.revision,
        version=stage.dataset.version,
        licence=stage.dataset.licence,
        rows=stage.rows,
        problem_ids=tuple(line.problem_id for line in lines),
        dropped=dropped,
        duplicates=duplicates,
        findings=findings,
        quality=_count_quality(lines),
        verified=changes.verified is not None,
        file=f"{stage.name}.parquet",
    )
    return Published(audit, (data, manifest, *paths))


def _manifest_line(problem: Problem, stage: Stage) -> ManifestLine:
    return manifest_line(
        problem,
        version=stage.dataset.version or stage.revision,
        source_url=_source_url(stage),
        revision=stage.revision,
        licence=stage.dataset.licence,
        role=stage.dataset.role,
    )


def _source_url(stage: Stage) -> str:
    """Return the configured URL of the source, or derive it from the source."""
    source = stage.dataset.source
    if stage.dataset.source_url:
        return redact_address(stage.dataset.source_url)
    if isinstance(source, HubSource):
        return f"https://huggingface.co/datasets/{source.path}"
    return source.path if isinstance(source, LocalSource) else redact_address(source.url)


def _source(stage: Stage) -> str:
    source = stage.dataset.source
    name = source.path if isinstance(source, HubSource | LocalSource) else source.dataset
    dates = stage.dataset.contest_dates
    return f"{source.kind}: {name}" + (f", contests {dates}" if dates else "")


def _write_data(path: str, stage: Stage, changes: Changes) -> Iterator[Problem]:
    """Write the parquet file and yield its problems as written."""
    found: defaultdict[str, set[QualityFinding]] = defaultdict(set)
    for entry in changes.verified or ():
        found[entry.problem_id].add(entry.finding)
    removed = changes.removed
    with writing_dataset(path, solutions=True) as writer:
        for record in read_records(stage.data):
            if record.problem.problem_id not in removed:
                problem = _with_quality(record, found[record.problem.problem_id])
                writer.add(problem, record.solutions, record.statement)
                yield problem


def _with_quality(record: Record, verified: set[QualityFinding]) -> Problem:
    problem = record.problem
    found = quality_findings(problem.quality) | verified
    return problem.model_copy(update={"quality": quality_text(found)}) if verified else problem


def _count_quality(lines: Sequence[ManifestLine]) -> dict[str, int]:
    counts = Counter(word for line in lines for word in line.quality.split(","))
    return {word: counts[word] for word in ("ok", *QualityFinding) if counts[word]}
