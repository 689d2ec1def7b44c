"""Manifests: a line per problem that a reviewer can check, and the lock over all files."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from services.data.lists import replace_text
from shared.canonical import CANONICAL_VERSION
from shared.data_lock import LOCK_NAME, DataLock, hash_file
from shared.schemas import Problem


class ManifestLine(BaseModel):
    """A problem as it was published. ``prompt_length`` is in characters.

    ``revision`` is what tells the source's state: a commit, or the hash of a local file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    split: str
    problem_id: str
    prompt_sha256: str
    prompt_length: int
    num_test_cases: int
    version: str
    source_url: str
    revision: str
    licence: str
    quality: str


def manifest_line(
    problem: Problem, *, version: str, source_url: str, revision: str, licence: str
) -> ManifestLine:
    return ManifestLine(
        dataset=problem.dataset,
        split=problem.split,
        problem_id=problem.problem_id,
        prompt_sha256=problem.prompt_sha256,
        prompt_length=len(problem.prompt),
        num_test_cases=problem.tests.cases,
        version=version,
        source_url=source_url,
        revision=revision,
        licence=licence,
        quality=problem.quality,
    )


def write_manifest(path: Path, lines: Iterable[ManifestLine]) -> None:
    """Write a manifest in one step.

    Raises:
        DataError: It cannot be written.
    """
    replace_text(path, "".join(f"{line.model_dump_json()}\n" for line in lines))


def write_lock(folder: Path, files: Iterable[Path]) -> Path:
    """Write the lock over data files and manifests, whose names have to be different.

    Returns:
        Its path.

    Raises:
        DataError: A file cannot be read, or the lock not written.
    """
    hashed = {path.name: hash_file(str(path)) for path in sorted(files, key=lambda path: path.name)}
    lock = DataLock(canonical_version=CANONICAL_VERSION, files=hashed)
    path = folder / LOCK_NAME
    replace_text(path, lock.model_dump_json(indent=2) + "\n")
    return path
