"""Consistency check of prepared data (`plumb data check`): the lock, and overlaps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from services.data.overlap import Reviewed, find_overlaps, load_allowlist, review
from services.data.quality import audit_lines
from services.data.records import NO_PROBLEM, ProblemText, read_records, text_of
from shared.datasets import CANONICAL_VERSION, canonicalize
from shared.errors import data_error
from shared.manifests import LOCK_NAME, differences, load_lock
from shared.schemas import Problem, sha256

# The end of the name of a file that is one of several.
_SHARD = re.compile(r"-\d+-of-\d+\.parquet$")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check: number of problems compared, and one line per difference.

    ``findings`` are those of the audit, which may be meant and are no differences.
    """

    problems: int
    findings: Sequence[str]
    differences: Sequence[str]
    reviewed: Reviewed

    @property
    def ok(self) -> bool:
        return not self.differences and not self.reviewed.open


def check(
    files: Sequence[str],
    manifests: str | None,
    allow: str | None,
    families: Mapping[str, str] = MappingProxyType({}),
) -> CheckResult:
    """Compare prepared files and manifests with the lock, and the problems with one another.

    Args:
        files: Prepared parquet files.
        manifests: Folder of lock and manifests; None skips that comparison.
        allow: File of reviewed overlaps.
        families: Family by data set, its own name if missing; sets of one family may overlap.

    Raises:
        DataError: A file cannot be read, or has no problem.
    """
    changes = list(_lock_differences(files, manifests)) if manifests else []
    texts: list[ProblemText] = []
    findings = audit_lines(_checked(files, texts, changes))
    overlaps = [overlap for overlap in find_overlaps(texts) if overlap.leaks(families)]
    return CheckResult(len(texts), findings, changes, review(overlaps, load_allowlist(allow)))


def _checked(
    files: Sequence[str], texts: list[ProblemText], changes: list[str]
) -> Iterator[Problem]:
    """Yield the problems of files, and collect their texts and hashes that differ.

    Files that name the same data set, such as verl's tables for training and validation, are
    compared as different sets. The shards of a table are one set.
    """
    places: dict[str, str] = {}
    for file in files:
        before, place = len(texts), _SHARD.sub("", str(file))
        for record in read_records(file):
            problem = record.problem
            if problem.prompt_sha256 != sha256(canonicalize(problem.prompt)):
                cause = f"problem {problem.problem_id!r}: prompt_sha256 does not match the prompt"
                changes.append(f"{file}: {cause}")
            text = text_of(record)
            if places.setdefault(text.dataset, place) != place:
                text = replace(text, dataset=f"{text.dataset} of {file}")
            texts.append(text)
            yield problem
        if len(texts) == before:
            raise data_error(file, NO_PROBLEM)


def _lock_differences(files: Sequence[str], manifests: str) -> Iterator[str]:
    path = f"{manifests}/{LOCK_NAME}"
    lock = load_lock(path)
    if lock.canonical_version != CANONICAL_VERSION:
        yield (
            f"{path}: written with version {lock.canonical_version} of the canonical form, "
            f"but this is version {CANONICAL_VERSION}"
        )
    lists = [f"{manifests}/{name}" for name in lock.files if not name.endswith(".parquet")]
    yield from differences(lock, [*files, *lists])
