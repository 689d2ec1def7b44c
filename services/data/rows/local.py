"""Rows of files: JSON Lines, a JSON array or parquet.

The file name determines the format: ``.parquet``, else JSON Lines, also with ``.gz``. A ``.json``
file that begins with a bracket is an array.
"""

import codecs
from collections.abc import Iterable, Sequence

import fsspec

from services.data.rows import Rows
from shared.datasets import parquet_rows
from shared.errors import data_error, reading
from shared.foreign_json import parse_json, read_json_lines
from shared.manifests import hash_file
from shared.redaction import redact_address

# A folder is read through its files with the first of these endings that occurs.
_ENDINGS = ((".parquet",), (".jsonl", ".jsonl.gz"))
_BEGINNING = 64  # bytes


def rows(path: str, columns: Sequence[str]) -> Rows:
    """Read a file or a folder row by row; few rows are in memory at a time.

    A folder has shards: ``*.parquet``, else JSON Lines files, sorted by name.

    Args:
        path: A local path or any fsspec URL; the rows' places lack its secrets.
        columns: The fields to yield; a row may lack some.

    Raises:
        DataError: While iterating: a file or row cannot be read; names file, row and cause.
    """
    for file in files(path):
        entries: Rows
        if file.endswith(".parquet"):
            table = parquet_rows(file, (), optional=columns)
            entries = ((f"{file}: row {number}", fields) for number, fields in table)
        elif _is_array(file):
            entries = _array_rows(file)
        else:
            entries = ((f"{file}:{number}", fields) for number, fields in read_json_lines(file))
        for place, fields in entries:
            chosen = {name: value for name, value in fields.items() if name in columns}
            yield redact_address(place), chosen


def files(path: str) -> list[str]:
    """List the files that ``rows`` reads, in order; a path to a file is its only entry.

    Raises:
        DataError: The folder has no data, or several data sets.
    """
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        if not fs.isdir(root):
            return [path]
        # fsspec reports a link as neither file nor directory; Kubernetes volumes consist of links.
        entries = [entry for entry in fs.ls(root, detail=True) if entry["type"] != "directory"]
    names = sorted(str(entry["name"]).rpartition("/")[2] for entry in entries)
    for endings in _ENDINGS:
        if chosen := [name for name in names if name.endswith(endings)]:
            return [f"{path.rstrip('/')}/{name}" for name in chosen]
    cause = "the folder has no *.parquet or *.jsonl; name one that has, or a file"
    raise data_error(path, f"{cause} (of a folder of save_to_disk, see docs/data.md)")


def revision(path: str) -> str:
    """Identify the content of a file or folder by the SHA-256 of its files.

    Raises:
        DataError: A file cannot be read.
    """
    return "sha256:" + "+".join(hash_file(file).sha256 for file in files(path))


def check_kept(source: str, outputs: Iterable[str]) -> None:
    """Refuse outputs that would replace a file of the source.

    Raises:
        DataError: There is one.
    """
    places = {fsspec.core.url_to_fs(file)[1] for file in files(source)}
    for output in outputs:
        with reading(output):
            if fsspec.core.url_to_fs(output)[1] in places:
                raise data_error(output, "the source is this file; write into another folder")


def _is_array(path: str) -> bool:
    if not path.removesuffix(".gz").endswith(".json"):
        return False
    with reading(path), fsspec.open(path, "rb", compression="infer") as file:
        beginning: bytes = file.read(_BEGINNING)
    return beginning.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _array_rows(path: str) -> Rows:
    with reading(path), fsspec.open(path, "rb", compression="infer") as file:
        entries = parse_json(file.read())
    for number, fields in enumerate(entries, start=1):
        place = f"{path}: entry {number}"
        if not isinstance(fields, dict):
            raise data_error(place, "not a JSON object; every entry must be one")
        yield place, fields
