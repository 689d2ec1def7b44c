"""Preparation pipeline: stage, check, publish, report, and write the lock last."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.data.config import PrepareConfig, families_of
from services.data.manifests import (
    Duplicate,
    OverlapEntry,
    write_list,
    write_lock,
)
from services.data.overlap.find import find_overlaps
from services.data.overlap.pairs import (
    Allowlist,
    Overlap,
    ProblemText,
    Reviewed,
    load_allowlist,
)
from services.data.prepare.audit import Audit, write_report
from services.data.prepare.publish import publish
from services.data.prepare.stages import Stage, stage_dataset
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
        verifier: Judges reference solutions and tries checkers; None skips that.
        commands: Commands that reproduce the data, for the report.

    Raises:
        DataError: A source cannot be used, or a file cannot be written.
    """
    allowed = load_allowlist(config.allow) if config.allow else Allowlist()
    stages = [_stage(config, name, progress, offline=offline) for name in config.datasets]
    texts = [text for stage in stages for text in _texts(stage)]
    progress.begin(f"comparing {len(texts):,} problems")
    overlaps = find_overlaps(texts)
    progress.end(f"{len(overlaps):,} pairs are alike")
    for stage in stages:
        stage.duplicates += _near_duplicates(stage, overlaps)
        if verifier is not None:
            stage.findings += verify(list(read_records(stage.data)), verifier)
            stage.verified = True
    removed = {(stage.name, one.problem_id) for stage in stages for one in stage.removed}
    families = families_of(config.datasets)
    between = [one for one in overlaps if one.leaks(families) and not _has_any(one, removed)]
    reviewed = allowed.split(between)
    files = [path for stage in stages for path in publish(config, stage)]
    audit = Audit(
        datasets=tuple(stages),
        overlaps=reviewed.open,
        reviewed=reviewed.allowed,
        stale=tuple(f"{one.a} and {one.b}: {one.reason}" for one in reviewed.stale),
        versions=_versions(),
        commands=tuple(commands),
    )
    write_list(listed := f"{config.manifests}/{OVERLAPS}", _overlap_entries(reviewed))
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


def _texts(stage: Stage) -> list[ProblemText]:
    role = stage.dataset.role
    return [text_of(record, role) for record in read_records(stage.data)]


def _has_any(overlap: Overlap, problems: set[tuple[str, str]]) -> bool:
    return any((side.dataset, side.problem_id) in problems for side in (overlap.a, overlap.b))


def _overlap_entries(reviewed: Reviewed) -> Iterator[OverlapEntry]:
    pairs: list[tuple[Overlap, str | None]] = [(one, None) for one in reviewed.open]
    pairs += [(one.overlap, one.reason) for one in reviewed.allowed]
    for overlap, reason in pairs:
        yield OverlapEntry(
            a=overlap.a.name,
            b=overlap.b.name,
            findings={found.kind: round(found.similarity, 4) for found in overlap.findings},
            excerpts=(overlap.a.excerpt, overlap.b.excerpt),
            reviewed=reason,
        )


def _near_duplicates(stage: Stage, overlaps: Sequence[Overlap]) -> list[Duplicate]:
    """List near duplicates within a data set, in its order; the first problem of a pair stays."""
    records = read_records(stage.data)
    order = {record.problem.problem_id: at for at, record in enumerate(records)}
    pairs = []
    for one in overlaps:
        if one.a.dataset == one.b.dataset == stage.name:
            first, second = sorted((one.a.problem_id, one.b.problem_id), key=order.__getitem__)
            pairs.append((order[second], order[first], first, second, one))
    pairs.sort(key=lambda pair: pair[:2])
    removed: set[str] = set()
    entries = []
    for _, _, first, second, overlap in pairs:
        remove = stage.dataset.remove_near_duplicates and not {first, second} & removed
        if remove:
            removed.add(second)
        entries.append(_near_duplicate(stage.name, first, second, overlap, remove=remove))
    return entries


def _near_duplicate(
    dataset: str, first: str, second: str, overlap: Overlap, *, remove: bool
) -> Duplicate:
    return Duplicate(
        dataset=dataset,
        problem_id=second,
        place="",
        duplicate_of=first,
        kind=", ".join(overlap.kinds),
        similarity=max(finding.similarity for finding in overlap.findings),
        removed=remove,
    )


def _versions() -> dict[str, str]:
    # No library versions: the same data must give the same report on every machine.
    return {
        "plumbline": versions_of(["plumbline"])["plumbline"],
        "canonical form": CANONICAL_VERSION,
    }
