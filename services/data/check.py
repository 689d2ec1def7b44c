"""`plumb data check`: are prepared sets still what their manifests say, and apart?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from services.data.config import ChecksConfig
from services.data.manifests import ManifestLine
from services.data.overlap.allow import Allowed, Reviewed, load_allowed
from services.data.overlap.find import find_overlaps
from services.data.overlap.texts import ProblemText
from services.data.records import read_records, text_of
from shared.canonical import CANONICAL_VERSION, canonicalize
from shared.data_lock import LOCK_NAME, differences, load_lock
from shared.json_lines import read_json_lines
from shared.reading import data_error
from shared.schemas import sha256


@dataclass(frozen=True, slots=True)
class Checked:
    """``problems`` counts what was compared; ``differences`` are a line each."""

    problems: int
    differences: tuple[str, ...]
    reviewed: Reviewed

    @property
    def ok(self) -> bool:
        return not self.differences and not self.reviewed.open


def check(
    files: Sequence[Path], manifests: Path | None, checks: ChecksConfig, roles: Mapping[str, str]
) -> Checked:
    """Compare prepared files with lock and manifests, and with one another.

    Args:
        files: Prepared parquet files.
        manifests: Folder of lock and manifests; None: they are not looked at.
        checks: What counts as an overlap.
        roles: ``train`` or ``eval`` by data set; ``eval`` where it is not there.

    Raises:
        DataError: A file cannot be read.
    """
    found = list(_locked(files, manifests)) if manifests else []
    texts: list[ProblemText] = []
    for file in files:
        there: dict[str, str] = {}
        for record in read_records(str(file)):
            problem = record.problem
            if problem.prompt_sha256 != sha256(canonicalize(problem.prompt)):
                cause = f"problem {problem.problem_id!r}: prompt_sha256 is of another prompt"
                found.append(f"{file}: {cause}")
            there[problem.problem_id] = problem.prompt_sha256
            texts.append(text_of(record, roles.get(problem.dataset, "eval")))
        found += _listed(file, there, manifests) if manifests else ()
    overlaps = [one for one in find_overlaps(texts, checks) if one.a.dataset != one.b.dataset]
    allowed = load_allowed(checks.allow) if checks.allow else Allowed()
    return Checked(len(texts), tuple(found), allowed.split(overlaps))


def _locked(files: Sequence[Path], manifests: Path) -> Iterator[str]:
    path = manifests / LOCK_NAME
    lock = load_lock(str(path))
    if lock.canonical_version != CANONICAL_VERSION:
        yield (
            f"{path}: made with version {lock.canonical_version} of the canonical form, "
            f"and this is version {CANONICAL_VERSION}"
        )
    beside = [manifests / name for name in lock.files if not name.endswith(".parquet")]
    yield from differences(lock, [str(file) for file in (*files, *beside)])


def _listed(file: Path, there: Mapping[str, str], manifests: Path) -> Iterator[str]:
    """Compare the file's problems, hashes of prompts by id, with its manifest."""
    path = manifests / f"{file.stem}.jsonl"
    listed = {line.problem_id: line.prompt_sha256 for line in _manifest(path)}
    for problem_id in sorted(there.keys() | listed.keys()):
        if problem_id not in listed:
            yield f"{path}: problem {problem_id!r} of {file} is not in it"
        elif problem_id not in there:
            yield f"{path}: problem {problem_id!r} is not in {file}"
        elif there[problem_id] != listed[problem_id]:
            yield f"{path}: problem {problem_id!r} has another prompt in {file}"


def _manifest(path: Path) -> Iterator[ManifestLine]:
    for number, fields in read_json_lines(str(path)):
        try:
            yield ManifestLine.model_validate(fields)
        except ValidationError:
            raise data_error(f"{path}:{number}", "not a line of a manifest") from None
