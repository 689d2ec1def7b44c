"""Publication of a stage: the parquet file that a run reads, its manifest and its lists."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from services.data.config import HubSource, LocalSource, PrepareConfig
from services.data.manifests import Entry, ManifestLine, manifest_line, write_list, write_manifest
from services.data.prepare.stages import Stage
from services.data.records import Record, read_records, writing_dataset
from shared.redaction import redact_address
from shared.schemas import Problem, QualityFinding, quality_findings, quality_text


def publish(config: PrepareConfig, stage: Stage) -> list[str]:
    """Write a data set's files, each atomically, without its removed problems.

    Returns:
        Their paths, which the lock covers.

    Raises:
        DataError: A file cannot be written.
    """
    manifests = config.manifests
    data, manifest = f"{config.output}/{stage.name}.parquet", f"{manifests}/{stage.name}.jsonl"
    stage.lines = [_manifest_line(problem, stage) for problem in _write_data(data, stage)]
    write_manifest(manifest, stage.lines)
    kept = set(stage.problem_ids)
    stage.findings = [entry for entry in stage.findings if entry.problem_id in kept]
    lists: dict[str, Sequence[Entry]] = {
        "duplicates": stage.duplicates,
        "dropped": stage.dropped,
        "quality": stage.findings,
    }
    paths = [f"{manifests}/{kind}_{stage.name}.jsonl" for kind in lists]
    for path, entries in zip(paths, lists.values(), strict=True):
        write_list(path, entries)
    return [data, manifest, *paths]


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


def _write_data(path: str, stage: Stage) -> Iterator[Problem]:
    """Write the parquet file and yield its problems as written."""
    found: defaultdict[str, set[QualityFinding]] = defaultdict(set)
    for entry in stage.findings:
        found[entry.problem_id].add(entry.finding)
    removed = {entry.problem_id for entry in stage.removed if entry.kind != "exact"}
    with writing_dataset(path, solutions=True) as writer:
        for record in read_records(stage.data):
            if record.problem.problem_id not in removed:
                problem = _with_quality(record, found[record.problem.problem_id])
                writer.add(problem, record.solutions, record.statement, record.wrong)
                yield problem


def _with_quality(record: Record, findings: set[QualityFinding]) -> Problem:
    known = quality_findings(record.problem.quality)
    quality = quality_text(known | findings)
    return record.problem.model_copy(update={"quality": quality})
