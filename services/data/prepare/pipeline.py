"""The whole way: stages, checks, publication, report, lock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.data.audit.model import Audit
from services.data.audit.report import write_report
from services.data.config import PrepareConfig
from services.data.lists import write_list
from services.data.manifests import write_lock
from services.data.overlap.allow import Allowed, Reviewed, load_allowed
from services.data.overlap.find import find_overlaps
from services.data.overlap.pairs import Overlap
from services.data.overlap.texts import ProblemText
from services.data.prepare.progress import Progress
from services.data.prepare.publish import Changes, publish
from services.data.prepare.stages import Staged, stage_dataset
from services.data.records import read_records, text_of
from services.data.solutions import Rejected, Verifier, reference_solutions
from shared.canonical import CANONICAL_VERSION
from shared.versions import versions_of

OVERLAPS = "overlaps.jsonl"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was written. ``audit.overlaps`` are why the data should not be used yet."""

    audit: Audit
    lock: Path
    report: Path


def prepare(
    config: PrepareConfig,
    progress: Progress,
    *,
    offline: bool = False,
    verifier: Verifier | None = None,
    commands: Sequence[str] = (),
) -> Prepared:
    """Prepare all data sets; what is there from an earlier, interrupted time is not made again.

    Nothing is published before all is read and checked. The lock is written last, so a run refuses
    a publication that was interrupted.

    Args:
        config: What to prepare.
        progress: Is told how far it is.
        offline: Never touch the network.
        verifier: Judges reference solutions; None: they are not judged.
        commands: Go into the report: what makes the same again.

    Raises:
        DataError: A source cannot be used, or a file not written.
    """
    allowed = load_allowed(config.checks.allow) if config.checks.allow else Allowed()
    staged = [_stage(config, name, progress, offline=offline) for name in config.datasets]
    texts = [text for one in staged for text in _texts(one)]
    progress.begin(f"comparing {len(texts):,} problems")
    overlaps = find_overlaps(texts, config.checks)
    progress.end(f"{len(overlaps):,} pairs are alike")
    near = {one.name: _near_duplicates(one, overlaps) for one in staged}
    removed = {
        (name, str(entry["problem_id"]))
        for name, entries in near.items()
        for entry in entries
        if entry["removed"]
    }
    rejected = _verified(staged, verifier)
    between = [one for one in overlaps if _between(one) and not _touches(one, removed)]
    reviewed = allowed.split(between)
    published = [
        publish(config, one, Changes(near[one.name], _own(rejected, one.name))) for one in staged
    ]
    audit = Audit(
        datasets=tuple(one.audit for one in published),
        overlaps=reviewed.open,
        reviewed=reviewed.allowed,
        stale=tuple(f"{one.a} and {one.b}: {one.reason}" for one in reviewed.stale),
        checks=config.checks,
        versions=_versions(),
        commands=tuple(commands),
    )
    manifests = Path(config.manifests)
    write_list(manifests / OVERLAPS, _overlap_entries(reviewed))
    report = write_report(manifests, audit)
    files = [path for one in published for path in one.files]
    lock = write_lock(manifests, [*files, manifests / OVERLAPS])
    return Prepared(audit, lock, report)


def _stage(config: PrepareConfig, name: str, progress: Progress, *, offline: bool) -> Staged:
    progress.begin(name)
    staged = stage_dataset(
        name, config.datasets[name], Path(config.raw), progress.advance, offline=offline
    )
    progress.end(f"{staged.state.rows:,} rows" + (", as before" if staged.reused else ""))
    return staged


def _texts(staged: Staged) -> list[ProblemText]:
    role = staged.dataset.role
    return [text_of(record, role) for record in read_records(str(staged.stage.data))]


def _verified(staged: Sequence[Staged], verifier: Verifier | None) -> list[Rejected] | None:
    if verifier is None:
        return None
    rejected: list[Rejected] = []
    for one in staged:
        solutions = reference_solutions(list(read_records(str(one.stage.data))))
        rejected += verifier(solutions) if solutions else []
    return rejected


def _own(rejected: Sequence[Rejected] | None, name: str) -> list[Rejected] | None:
    return None if rejected is None else [one for one in rejected if one.dataset == name]


def _between(overlap: Overlap) -> bool:
    return overlap.a.dataset != overlap.b.dataset


def _touches(overlap: Overlap, removed: set[tuple[str, str]]) -> bool:
    return any((side.dataset, side.problem_id) in removed for side in (overlap.a, overlap.b))


def _overlap_entries(reviewed: Reviewed) -> Iterator[dict[str, Any]]:
    pairs: list[tuple[Overlap, str | None]] = [(one, None) for one in reviewed.open]
    pairs += [(one.overlap, one.reason) for one in reviewed.allowed]
    for overlap, reason in pairs:
        yield {
            "a": overlap.a.name,
            "b": overlap.b.name,
            "findings": {
                found.kind.value: round(found.similarity, 4) for found in overlap.findings
            },
            "excerpts": [overlap.a.excerpt, overlap.b.excerpt],
            "reviewed": reason,
        }


def _near_duplicates(staged: Staged, overlaps: Sequence[Overlap]) -> list[dict[str, Any]]:
    """Near copies within a data set, by the order of its problems; the first of them stays."""
    order: dict[str, int] = {}
    for record in read_records(str(staged.stage.data)):
        order[record.problem.problem_id] = len(order)
    pairs = []
    for one in overlaps:
        if one.a.dataset == one.b.dataset == staged.name:
            first, second = sorted((one.a.problem_id, one.b.problem_id), key=order.__getitem__)
            pairs.append((order[second], order[first], first, second, one))
    pairs.sort(key=lambda pair: pair[:2])
    removed: set[str] = set()
    entries = []
    for _, _, first, second, overlap in pairs:
        remove = staged.dataset.remove_near_duplicates and not {first, second} & removed
        if remove:
            removed.add(second)
        entries.append(
            {
                "dataset": staged.name,
                "problem_id": second,
                "place": "",
                "duplicate_of": first,
                "kind": ", ".join(kind.value for kind in overlap.kinds),
                "similarity": max(finding.similarity for finding in overlap.findings),
                "removed": remove,
            }
        )
    return entries


def _versions() -> dict[str, str]:
    # No others: the same data have the same report on every machine.
    return {
        "plumbline": versions_of(["plumbline"])["plumbline"],
        "canonical form": CANONICAL_VERSION,
    }
