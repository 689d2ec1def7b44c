"""Preparation pipeline: stage, check, publish, report, and write the lock last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.data.config import PrepareConfig, families_of
from services.data.manifests import Duplicate, OverlapEntry, write_list, write_lock
from services.data.overlap.find import find_overlaps
from services.data.overlap.pairs import Overlap, load_allowlist, review
from services.data.prepare.audit import Audit, write_report
from services.data.prepare.stages import Stage, publish, stage_dataset
from services.data.prepare.verification import verify
from services.data.records import Verifier, read_records, text_of
from shared.datasets import CANONICAL_VERSION
from shared.versions import versions_of

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
    stages = [_stage(config, name, progress, offline=offline) for name in config.datasets]
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
    audit = Audit(
        datasets=tuple(stages),
        overlaps=reviewed.open,
        reviewed=reviewed.allowed,
        stale=tuple(f"{entry.a} and {entry.b}: {entry.reason}" for entry in reviewed.stale),
        # No library versions: the same data must give the same report on every machine.
        versions={
            "plumbline": versions_of(["plumbline"])["plumbline"],
            "canonical form": CANONICAL_VERSION,
        },
        commands=tuple(commands),
    )
    entries = map(_entry, (*reviewed.open, *reviewed.allowed))
    write_list(listed := f"{config.manifests}/{OVERLAPS}", entries)
    report = write_report(config.manifests, audit)
    lock = write_lock(config.manifests, [*files, listed])
    return Prepared(audit, lock, report)


def _stage(config: PrepareConfig, name: str, progress: PrepareProgress, *, offline: bool) -> Stage:
    progress.begin(name)
    stage = stage_dataset(
        name, config.datasets[name], Path(config.raw), progress.advance, offline=offline
    )
    progress.end(f"{stage.rows:,} rows")
    return stage


def _entry(overlap: Overlap) -> OverlapEntry:
    return OverlapEntry(
        a=overlap.a.name,
        b=overlap.b.name,
        findings={kind: round(share, 4) for kind, share in overlap.findings.items()},
        excerpts=overlap.excerpts,
        reviewed=overlap.reviewed,
    )


def _near_duplicates(stage: Stage, overlaps: Sequence[Overlap]) -> list[Duplicate]:
    """List near duplicates within a data set, in its order; none is removed."""
    ids = [record.problem.problem_id for record in read_records(stage.data)]
    order = {problem_id: at for at, problem_id in enumerate(ids)}
    pairs = sorted(
        (*sorted((order[pair.b.problem_id], order[pair.a.problem_id]), reverse=True), number)
        for number, pair in enumerate(overlaps)
        if pair.datasets == {stage.name}
    )
    return [
        Duplicate(
            dataset=stage.name,
            problem_id=ids[second],
            place="",
            duplicate_of=ids[first],
            kind=", ".join(overlaps[number].findings),
            similarity=max(overlaps[number].findings.values()),
            removed=False,
        )
        for second, first, number in pairs
    ]
