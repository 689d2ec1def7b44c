"""From stages to what a run reads and a reviewer checks: parquet, manifest and lists."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.data.audit.model import DatasetAudit
from services.data.config import HubSource, LocalSource, PrepareConfig
from services.data.lists import write_list
from services.data.manifests import ManifestLine, manifest_line, write_manifest
from services.data.prepare.stages import Staged
from services.data.records import SOLUTIONS, Record, read_records, solutions_text
from services.data.solutions import Rejected
from shared.dataset_writer import writing_dataset
from shared.quality import QualityFinding, quality_findings, quality_text
from shared.schemas import Problem


@dataclass(frozen=True, slots=True)
class Changes:
    """What the checks changed of a stage.

    ``near`` are near duplicates within the data set, as they are listed; ``rejected`` is None where
    reference solutions were not judged.
    """

    near: Sequence[Mapping[str, Any]]
    rejected: Sequence[Rejected] | None

    @property
    def removed(self) -> set[str]:
        return {str(entry["problem_id"]) for entry in self.near if entry["removed"]}


@dataclass(frozen=True, slots=True)
class Published:
    """``files`` are the ones that the lock covers."""

    audit: DatasetAudit
    files: tuple[Path, ...]


def publish(config: PrepareConfig, staged: Staged, changes: Changes) -> Published:
    """Write a data set's files, each in one step.

    Raises:
        DataError: A file cannot be written.
    """
    manifests = Path(config.manifests)
    data = Path(config.output) / f"{staged.name}.parquet"
    findings = [*staged.stage.read(staged.stage.findings), *_rejected(changes.rejected or ())]
    lines = [
        manifest_line(
            problem,
            version=staged.dataset.version or staged.state.revision,
            source_url=source_url(staged),
            revision=staged.state.revision,
            licence=staged.dataset.licence,
        )
        for problem in _write(data, staged, changes)
    ]
    duplicates = [*staged.stage.read(staged.stage.duplicates), *changes.near]
    dropped = staged.stage.read(staged.stage.dropped)
    manifest = manifests / f"{staged.name}.jsonl"
    write_manifest(manifest, lines)
    kept = {line.problem_id for line in lines}
    findings = [entry for entry in findings if entry["problem_id"] in kept]
    lists: dict[str, list[Any]] = {
        "duplicates": duplicates,
        "dropped": dropped,
        "quality": findings,
    }
    paths = [manifests / f"{kind}_{staged.name}.jsonl" for kind in lists]
    for path, entries in zip(paths, lists.values(), strict=True):
        write_list(path, entries)
    audit = DatasetAudit(
        name=staged.name,
        split=", ".join(sorted({line.split for line in lines})),
        role=staged.dataset.role,
        source=_source(staged),
        revision=staged.state.revision,
        version=staged.dataset.version,
        licence=staged.dataset.licence,
        rows=staged.state.rows,
        problem_ids=tuple(line.problem_id for line in lines),
        dropped=tuple(dropped),
        duplicates=tuple(duplicates),
        findings=tuple(findings),
        quality=_quality(lines),
        verified=changes.rejected is not None,
        file=data.name,
    )
    return Published(audit, (data, manifest, *paths))


def source_url(staged: Staged) -> str:
    """Where a reader finds the source: as configured, or what its kind says."""
    source = staged.dataset.source
    if staged.dataset.source_url:
        return staged.dataset.source_url
    if isinstance(source, HubSource):
        return f"https://huggingface.co/datasets/{source.path}"
    return source.path if isinstance(source, LocalSource) else source.url


def _source(staged: Staged) -> str:
    source = staged.dataset.source
    name = source.path if isinstance(source, HubSource | LocalSource) else source.dataset
    return f"{source.kind}: {name}"


def _write(path: Path, staged: Staged, changes: Changes) -> Iterator[Problem]:
    """Write the file, and yield its problems as they are in it."""
    rejected = {one.problem_id for one in changes.rejected or ()}
    removed = changes.removed
    with writing_dataset(str(path), [SOLUTIONS]) as writer:
        for record in read_records(str(staged.stage.data)):
            if record.problem.problem_id not in removed:
                problem = _with_quality(record, rejected)
                writer.add(problem, **{SOLUTIONS: solutions_text(record.solutions)})
                yield problem


def _with_quality(record: Record, rejected: set[str]) -> Problem:
    problem = record.problem
    if problem.problem_id not in rejected:
        return problem
    found = quality_findings(problem.quality) | {QualityFinding.REJECTED_SOLUTION}
    return problem.model_copy(update={"quality": quality_text(found)})


def _rejected(rejected: Sequence[Rejected]) -> Iterator[dict[str, Any]]:
    for one in rejected:
        yield {
            "problem_id": one.problem_id,
            "finding": QualityFinding.REJECTED_SOLUTION.value,
            "reason": f"solution {one.number}: {one.reason}",
        }


def _quality(lines: Sequence[ManifestLine]) -> dict[str, int]:
    counts = Counter(word for line in lines for word in line.quality.split(","))
    return {word: counts[word] for word in ("ok", *QualityFinding) if counts[word]}
