"""Files published with the data: manifests, lists of findings (JSON Lines) and the lock."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec
from pydantic import BaseModel, ConfigDict

from shared.datasets import CANONICAL_VERSION
from shared.errors import data_error
from shared.files import atomic_write
from shared.manifests import LOCK_NAME, DataLock, DataRole, hash_file
from shared.schemas import Problem, QualityFinding


class ManifestLine(BaseModel):
    """A published problem. ``prompt_length`` is in characters.

    ``revision`` identifies the state of the source: a commit, or the hash of a local file.
    ``contest_date`` is in the line if the problem has one, ``role`` if the data set is for
    training.
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
    contest_date: str | None = None
    role: DataRole = DataRole.EVAL


def manifest_line(problem: Problem, **source: str) -> ManifestLine:
    """Describe a problem; ``source`` has version, source_url, revision, licence and role."""
    values = {
        "dataset": problem.dataset,
        "split": problem.split,
        "problem_id": problem.problem_id,
        "prompt_sha256": problem.prompt_sha256,
        "prompt_length": len(problem.prompt),
        "num_test_cases": problem.tests.cases,
        "quality": problem.quality,
        "contest_date": problem.info.contest_date,
    }
    return ManifestLine.model_validate(values | source)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A problem that duplicates another one of its data set.

    ``kind`` is ``exact`` or how the overlap check matched the two; ``similarity`` is 0 to 1.
    """

    dataset: str
    problem_id: str
    place: str
    duplicate_of: str
    kind: str
    similarity: float
    removed: bool


@dataclass(frozen=True, slots=True)
class QualityEntry:
    """A finding of the test audit, or a rejected reference solution."""

    problem_id: str
    finding: QualityFinding
    reason: str


def write_manifest(path: str, lines: Iterable[ManifestLine]) -> None:
    """Write a manifest atomically.

    Raises:
        DataError: The file cannot be written.
    """
    texts = (line.model_dump_json(exclude_defaults=True) for line in lines)
    replace_text(path, "".join(f"{text}\n" for text in texts))


def write_list(path: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write a list atomically, one JSON object per entry; it may be empty.

    Raises:
        DataError: The file cannot be written.
    """
    replace_text(path, "".join(f"{json.dumps(entry)}\n" for entry in entries))


def replace_text(path: str, text: str) -> None:
    """Write a file, a local path or any fsspec URL, atomically; missing folders are created.

    Raises:
        DataError: The file cannot be written.
    """
    try:
        fs, target = fsspec.core.url_to_fs(path)
        with atomic_write(fs, target) as file:
            file.write(text)
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be written ({error}); check the folder") from None


def write_lock(folder: str, files: Iterable[str]) -> str:
    """Write the lock of data files and manifests; their file names must differ.

    Returns:
        Path of the lock.

    Raises:
        DataError: A file cannot be read, or the lock cannot be written.
    """
    names = {PurePosixPath(path).name: path for path in files}
    hashed = {name: hash_file(names[name]) for name in sorted(names)}
    lock = DataLock(canonical_version=CANONICAL_VERSION, files=hashed)
    path = f"{folder}/{LOCK_NAME}"
    replace_text(path, lock.model_dump_json(indent=2) + "\n")
    return path
