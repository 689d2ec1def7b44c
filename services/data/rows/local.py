"""Rows of files as they are published: JSON lines, a JSON array, parquet or Arrow.

The name says which: ``.parquet``, ``.arrow``, ``.json`` for an array, and JSON lines else; gzip is
known by its first bytes, too.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from services.data.rows.arrow_files import arrow_rows, check_columns, saved_shards, saved_splits
from services.data.rows.base import Rows
from services.data.rows.json_files import array_rows, line_rows
from shared.datasets import parquet_rows
from shared.reading import data_error, reading

# Of a folder's files those of the first ending that there is: other files lie beside the data.
_ENDINGS = ((".parquet",), (".arrow",), (".jsonl", ".jsonl.gz"))


def rows(path: str, columns: Sequence[str] | None) -> Rows:
    """Read a file or a folder row by row; few rows are in memory at a time.

    A folder is one that ``save_to_disk`` of Hugging Face's datasets wrote, or shards: its
    ``*.parquet``, else its ``*.arrow``, else its JSON lines, sorted by name.

    Args:
        path: A local path, or any fsspec URL but to Arrow files.
        columns: The fields to give; a row may lack some. None for all.

    Raises:
        DataError: While iterating: a file or row cannot be read; names file, row and cause.
    """
    for file in files(path):
        yield from _file_rows(file, columns)


def files(path: str) -> list[str]:
    """The files that ``rows`` reads, in its order; anything but a folder is itself the file.

    Raises:
        DataError: A folder without data, or with several data sets.
    """
    names = _names_in(path)
    if names is None:
        return [path]
    folder = path.rstrip("/")
    if "state.json" in names:
        return [f"{folder}/{name}" for name in saved_shards(f"{folder}/state.json")]
    if "dataset_dict.json" in names:
        splits = ", ".join(saved_splits(f"{folder}/dataset_dict.json"))
        raise data_error(path, f"a folder of several splits; name the folder of one: {splits}")
    for endings in _ENDINGS:
        if found := [f"{folder}/{name}" for name in names if name.endswith(endings)]:
            return found
    cause = "a folder without *.parquet, *.arrow or *.jsonl"
    raise data_error(path, f"{cause}; name a folder that has some, or a file")


def _file_rows(file: str, columns: Sequence[str] | None) -> Rows:
    name = file.removesuffix(".gz")
    if file.endswith(".parquet"):
        yield from _parquet_rows(file, columns)
    elif file.endswith(".arrow"):
        yield from arrow_rows(file, columns)
    else:
        found = array_rows(file) if name.endswith(".json") else line_rows(file)
        yield from _with_columns(found, columns)


def _with_columns(found: Rows, columns: Sequence[str] | None) -> Rows:
    for place, fields in found:
        if columns is not None:
            fields = {name: value for name, value in fields.items() if name in columns}
        yield place, fields


def _parquet_rows(file: str, columns: Sequence[str] | None) -> Rows:
    check = partial(check_columns, columns=columns)
    names = _parquet_columns(file) if columns is None else columns
    for number, fields in parquet_rows(file, (), optional=names, check_types=check):
        yield f"{file}: row {number}", fields


def _parquet_columns(file: str) -> list[str]:
    with reading(file), fsspec.open(file, "rb") as opened:
        try:
            return list(pq.read_schema(opened).names)
        except pa.ArrowInvalid as error:
            raise data_error(file, f"not a parquet file ({error}); check the file") from None


def _names_in(path: str) -> list[str] | None:
    """The sorted names of the files in a folder; None where ``path`` is no folder."""
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        return sorted(_file_names(fs, root)) if fs.isdir(root) else None


def _file_names(fs: fsspec.AbstractFileSystem, root: str) -> Iterator[str]:
    for entry in fs.ls(root, detail=True):
        # Links are neither file nor directory to fsspec, and a Kubernetes volume is made of links.
        if entry["type"] != "directory":
            yield str(entry["name"]).rpartition("/")[2]
