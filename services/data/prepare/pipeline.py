"""Preparation pipeline: stage, check, publish, report, and write the lock last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.data.config import PrepareConfig, families_of
from services.data.manifests import Duplicate, write_list, write_lock
from services.data.overlap.find import find_overlaps
from services.data.overlap.pairs import Overlap, load_allowlist, review
from services.data.prepare.audit import Audit, write_report
from services.data.prepare.stages import Stage, publish, stage_dataset
from services.data.prepare.verification import verify
from services.data.records import Verifier, read_records, text_of
from shared.datasets import CANONICAL_VERSION
from shared.versions import release

OVERLAPS = "overlaps.jsonl"


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
