"""Rows of local files: JSON Lines, a JSON array, parquet or Arrow.

The file name determines the format: ``.parquet``, ``.arrow``, ``.json`` for an array, JSON Lines
otherwise. Gzip is also recognized by its first bytes.
"""

import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, cast

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from services.data.rows import Rows
from services.data.rows.arrow_files import arrow_rows, check_columns, saved_shards, saved_splits
from shared.data_lock import hash_file
from shared.datasets import parquet_rows
from shared.errors import data_error, reading
from shared.json_lines import numbered_lines, parse_json, parse_line

# A folder is read through its files with the first of these endings that occurs.
_ENDINGS = ((".parquet",), (".arrow",), (".jsonl", ".jsonl.gz"))


def rows(path: str, columns: Sequence[str] | None) -> Rows:
    """Read a file or a folder row by row; few rows are in memory at a time.

    A folder is either written by ``save_to_disk`` of Hugging Face datasets, or it has shards:
    ``*.parquet``, else ``*.arrow``, else JSON Lines files, sorted by name.

    Args:
        path: A local path or, except for Arrow files, any fsspec URL.
        columns: The fields to yield; a row may lack some. None for all.

    Raises:
        DataError: While iterating: a file or row cannot be read; names file, row and cause.
    """
    for file in files(path):
        yield from _file_rows(file, columns)


def files(path: str) -> list[str]:
    """List the files that ``rows`` reads, in order; a path to a file is its only entry.

    Raises:
        DataError: The folder has no data, or several data sets.
    """
    names = _names_in(path)
    if names is None:
        return [path]
    folder = path.rstrip("/")
    if "state.json" in names:
        return [f"{folder}/{name}" for name in saved_shards(f"{folder}/state.json")]
    if "dataset_dict.json" in names:
        splits = ", ".join(saved_splits(f"{folder}/dataset_dict.json"))
        raise data_error(path, f"the folder has several splits; name the folder of one: {splits}")
    for endings in _ENDINGS:
        if found := [f"{folder}/{name}" for name in names if name.endswith(endings)]:
            return found
    cause = "the folder has no *.parquet, *.arrow or *.jsonl"
    raise data_error(path, f"{cause}; name a folder with data, or a file")


def revision(path: str) -> str:
    """Identify the content of a file or folder by the SHA-256 of its files.

    Raises:
        DataError: A file cannot be read.
    """
    return "sha256:" + "+".join(hash_file(file).sha256 for file in files(path))


def _file_rows(file: str, columns: Sequence[str] | None) -> Rows:
    name = file.removesuffix(".gz")
    if file.endswith(".parquet"):
        yield from _parquet_rows(file, columns)
    elif file.endswith(".arrow"):
        yield from arrow_rows(file, columns)
    else:
        found = _array_rows(file) if name.endswith(".json") else _line_rows(file)
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
    """List the file names of a folder, sorted; None if ``path`` is not a folder."""
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        return sorted(_file_names(fs, root)) if fs.isdir(root) else None


def _file_names(fs: fsspec.AbstractFileSystem, root: str) -> Iterator[str]:
    for entry in fs.ls(root, detail=True):
        # fsspec reports a link as neither file nor directory; Kubernetes volumes consist of links.
        if entry["type"] != "directory":
            yield str(entry["name"]).rpartition("/")[2]


_GZIP = b"\x1f\x8b"


def _line_rows(path: str) -> Rows:
    with reading(path), _opened(path) as file:
        for number, line in numbered_lines(path, file):
            if line.strip():
                place = f"{path}:{number}"
                yield place, parse_line(place, line)


def _array_rows(path: str) -> Rows:
    with reading(path), _opened(path) as file:
        entries = parse_json(file.read())
    if not isinstance(entries, list):
        raise data_error(path, "not a JSON array; name it .jsonl if it has one problem per line")
    for number, fields in enumerate(entries, start=1):
        place = f"{path}: entry {number}"
        if not isinstance(fields, dict):
            raise data_error(place, "not a JSON object; every entry must be one")
        yield place, fields


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open the file, decompressed if its name or its first bytes indicate gzip."""
    with fsspec.open(path, "rb") as raw, io.BufferedReader(raw) as file:
        if path.endswith(".gz") or file.peek(len(_GZIP)).startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as content:
                yield cast(BinaryIO, content)
        else:
            yield cast(BinaryIO, file)
