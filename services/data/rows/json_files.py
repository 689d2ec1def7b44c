"""Rows of JSON files: an object a line, or one array of objects; gzip or plain."""

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import fsspec

from services.data.rows.base import Rows
from shared.json_lines import numbered_lines, parse_line
from shared.reading import data_error, reading

_GZIP = b"\x1f\x8b"


def line_rows(path: str) -> Rows:
    """The objects of a JSONL file; blank lines are skipped.

    Raises:
        DataError: While iterating: the file or a line cannot be read; names file and line.
    """
    with reading(path), _opened(path) as file:
        for number, line in numbered_lines(path, file):
            if line.strip():
                place = f"{path}:{number}"
                yield place, parse_line(place, line)


def array_rows(path: str) -> Rows:
    """The objects of a file that is one JSON array.

    Raises:
        DataError: While iterating: the file cannot be read, or has something else in it.
    """
    with reading(path), _opened(path) as file:
        entries = json.load(file)
    if not isinstance(entries, list):
        raise data_error(path, "not a JSON array; name it .jsonl if it has a problem a line")
    for number, fields in enumerate(entries, start=1):
        place = f"{path}: entry {number}"
        if not isinstance(fields, dict):
            raise data_error(place, "not a JSON object; every entry has to be one")
        yield place, fields


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The file, decompressed where its name or its first bytes say gzip."""
    with fsspec.open(path, "rb") as raw, io.BufferedReader(raw) as file:
        if path.endswith(".gz") or file.peek(len(_GZIP)).startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as content:
                yield cast(BinaryIO, content)
        else:
            yield cast(BinaryIO, file)
