"""The lock of prepared data: which bytes a run has to find."""

import hashlib
from collections.abc import Iterable
from pathlib import PurePosixPath

import fsspec
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.reading import data_error, reading
from shared.schemas import describe

LOCK_NAME = "manifest.lock.json"
_BLOCK = 1 << 20


class LockedFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    bytes: int


class DataLock(BaseModel):
    """SHA-256 of every data file and manifest, by file name: a folder may be moved as a whole.

    ``canonical_version`` is that of the rule behind the hashes of prompts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    canonical_version: str
    files: dict[str, LockedFile]


def hash_file(path: str) -> LockedFile:
    """Hash a file, a local path or any fsspec URL.

    Raises:
        DataError: It cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    with reading(path), fsspec.open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return LockedFile(sha256=digest.hexdigest(), bytes=size)


def load_lock(path: str) -> DataLock:
    """Read a lock.

    Raises:
        DataError: There is none, or it is not one.
    """
    with reading(path), fsspec.open(path, "rb") as file:
        text = file.read()
    try:
        return DataLock.model_validate_json(text)
    except ValidationError as error:
        cause = f"not a lock of prepared data ({describe(error)}); run plumb data prepare again"
        raise data_error(path, cause) from None


def differences(lock: DataLock, paths: Iterable[str]) -> list[str]:
    """What is otherwise than the lock says, a line per file; hashes the files.

    Raises:
        DataError: A file cannot be read.
    """
    found = (_difference(lock, path) for path in paths)
    return [difference for difference in found if difference]


def _difference(lock: DataLock, path: str) -> str:
    locked = lock.files.get(PurePosixPath(path).name)
    if locked is None:
        return f"{path} is not in the lock"
    there = hash_file(path)
    if there == locked:
        return ""
    return f"{path} has SHA-256 {there.sha256[:12]}…, and {locked.sha256[:12]}… is in the lock"
