"""Roles of data sets, training or evaluation, read from the manifests of prepared files.

A manifest is found beside its parquet file. ``plumb data import`` writes ``<file>.manifest.jsonl``
into the same folder; ``plumb data prepare`` writes ``<file>.jsonl`` into the folder of the lock:
the file's own folder, or ``data_manifests`` in it or in one of the two folders above. Without a
manifest, or without a role in it, a data set is for evaluation: to train on a test by mistake is
worse than to refuse a training set.
"""

from enum import StrEnum
from pathlib import PurePosixPath

import fsspec
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.data_lock import LOCK_NAME
from shared.errors import data_error, reading
from shared.json_lines import numbered_lines, parse_line
from shared.schemas import describe

MANIFESTS = "data_manifests"
IMPORTED = ".manifest.jsonl"
"""Ending of the manifest that an import writes; ``<file>.jsonl`` may be the imported source."""


class DataRole(StrEnum):
    """Use of a data set: ``train`` for training, ``eval`` for evaluation only."""

    TRAIN = "train"
    EVAL = "eval"


class _Line(BaseModel):
    """The part of a manifest's line that names the use of the data set."""

    model_config = ConfigDict(frozen=True)

    dataset: str
    role: DataRole = DataRole.EVAL


def manifest_folder(path: str) -> str | None:
    """Find the folder with the lock and the manifests of a parquet file, if there is one.

    The file is a local path or any fsspec URL, the folder a path of the same file system.

    Raises:
        DataError: The folders cannot be read.
    """
    with reading(path):
        fs, file = fsspec.core.url_to_fs(path)
        folder = file.rpartition("/")[0]
        above = [folder, *(folder.rsplit("/", levels)[0] for levels in (1, 2))]
        folders = [folder, *(f"{one}/{MANIFESTS}" for one in above)]
        return next((one for one in folders if fs.exists(f"{one}/{LOCK_NAME}")), None)


def dataset_roles(path: str, manifests: str | None = None) -> dict[str, DataRole]:
    """Read the roles of a parquet file's data sets from its manifests.

    A data set that is missing is ``EVAL``. ``manifests`` is their folder; None finds it.

    Raises:
        DataError: A manifest cannot be read, or gives a data set two roles.
    """
    with reading(path):
        fs, file = fsspec.core.url_to_fs(path)
    stem = file.removesuffix(".parquet")
    names = [f"{stem}{IMPORTED}"]
    if folder := manifests or manifest_folder(path):
        names.append(f"{folder.rstrip('/')}/{PurePosixPath(stem).name}.jsonl")
    roles: dict[str, DataRole] = {}
    for name in names:
        with reading(name):
            lines = fs.cat_file(name).splitlines(keepends=True) if fs.exists(name) else []
        for number, content in numbered_lines(name, lines):
            place = f"{name}:{number}"
            try:
                line = _Line.model_validate(parse_line(place, content))
            except ValidationError as error:
                cause = f"not a line of a manifest ({describe(error)}); prepare the data again"
                raise data_error(place, cause) from None
            if roles.setdefault(line.dataset, line.role) != line.role:
                cause = f"data set {line.dataset!r} is for training here and evaluation elsewhere"
                raise data_error(place, f"{cause}; delete the manifest that is out of date")
    return roles
