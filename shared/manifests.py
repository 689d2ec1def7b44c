"""Lock and manifests of prepared data: hashes of the files, and roles of the data sets.

The lock has the SHA-256 of every data file and is checked before a run. ``plumb data import``
writes the manifest ``<file>.manifest.jsonl`` beside the parquet file. ``plumb data prepare`` writes
``<file>.jsonl`` into the folder of the lock: the file's own folder, or ``data_manifests`` in it or
in one of the two folders above. Without a manifest, or without a role in it, a data set is for
evaluation: to train on a test by mistake is worse than to refuse a training set.

A file that cannot be read or is malformed is a :class:`DataError`.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import PurePosixPath

import fsspec
from pydantic import ValidationError

from shared.errors import data_error, reading
from shared.foreign_json import numbered_lines, parse_line
from shared.schemas import Part, describe

LOCK_NAME = "manifest.lock.json"
_BLOCK = 1 << 20


class LockedFile(Part):
    """Hash and size of a file."""

    sha256: str
    bytes: int


class DataLock(Part):
    """Hashes of data files and manifests by file name, so that folders may be moved.

    ``canonical_version`` is the version of the canonical form of prompts that was hashed.
    """

    canonical_version: str
    files: dict[str, LockedFile]


def hash_file(path: str) -> LockedFile:
    """Hash a file, a local path or any fsspec URL."""
    digest, size = hashlib.sha256(), 0
    with reading(path), fsspec.open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return LockedFile(sha256=digest.hexdigest(), bytes=size)


def load_lock(path: str) -> DataLock:
    """Read a lock."""
    with reading(path), fsspec.open(path, "rb") as file:
        text = file.read()
    try:
        return DataLock.model_validate_json(text)
    except ValidationError as error:
        cause = f"not a lock of prepared data ({describe(error)}); run plumb data prepare again"
        raise data_error(path, cause) from None


def differences(lock: DataLock, paths: Iterable[str]) -> list[str]:
    """Compare files with the lock by hash; return one line per difference."""
    lines: list[str] = []
    for path in paths:
        locked = lock.files.get(PurePosixPath(path).name)
        if locked is None:
            lines.append(f"{path} is not in the lock")
        elif (present := hash_file(path)) != locked:
            ours, theirs = present.sha256[:12], locked.sha256[:12]
            lines.append(f"{path} has SHA-256 {ours}…, but the lock has {theirs}…")
    return lines


MANIFESTS = "data_manifests"
IMPORTED = ".manifest.jsonl"
"""Ending of the manifest that an import writes; ``<file>.jsonl`` may be the imported source."""


class DataRole(StrEnum):
    """Use of a data set: ``train`` for training, ``eval`` for evaluation only."""

    TRAIN = "train"
    EVAL = "eval"


class ManifestRow(Part):
    """The part of a manifest's line that names a problem and the use of its data set."""

    dataset: str
    problem_id: str = ""
    role: DataRole = DataRole.EVAL


def manifest_folder(path: str) -> str | None:
    """Find the folder with the lock and the manifests of a parquet file, if there is one.

    The file is a local path or any fsspec URL, the folder a path of the same file system.
    """
    with reading(path):
        fs, file = fsspec.core.url_to_fs(path)
        folder = file.rpartition("/")[0]
        above = [folder, *(folder.rsplit("/", levels)[0] for levels in (1, 2))]
        folders = [folder, *(f"{parent}/{MANIFESTS}" for parent in above)]
        return next((name for name in folders if fs.exists(f"{name}/{LOCK_NAME}")), None)


def dataset_roles(path: str) -> dict[str, DataRole]:
    """Read the roles of a parquet file's data sets from its manifests.

    A data set that is missing is ``EVAL``.
    """
    with reading(path):
        fs, file = fsspec.core.url_to_fs(path)
    stem = file.removesuffix(".parquet")
    names = [f"{stem}{IMPORTED}"]
    if folder := manifest_folder(path):
        names.append(f"{folder}/{PurePosixPath(stem).name}.jsonl")
    roles: dict[str, DataRole] = {}
    for name in names:
        with reading(name):
            lines = fs.cat_file(name).splitlines(keepends=True) if fs.exists(name) else []
        for number, content in numbered_lines(name, lines):
            place = f"{name}:{number}"
            try:
                line = ManifestRow.model_validate(parse_line(place, content))
            except ValidationError as error:
                cause = f"not a line of a manifest ({describe(error)}); prepare the data again"
                raise data_error(place, cause) from None
            if roles.setdefault(line.dataset, line.role) != line.role:
                cause = f"data set {line.dataset!r} is for training here and evaluation elsewhere"
                raise data_error(place, f"{cause}; delete the manifest that is out of date")
    return roles
