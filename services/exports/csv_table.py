"""One CSV file (RFC 4180, UTF-8) with a row per sample; lists and records in it are JSON."""

import csv
import json
from collections.abc import Iterator

from services.exports.rows import SCHEMA, row
from services.exports.samples import RunSamples
from shared.artifacts import OutputFolder

NAME = "samples.csv"


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write all data sets into one file; yields its name."""
    with folder.replacing(NAME, "wb") as file:
        for values in _rows(samples):
            file.write(_line(values).encode())
    yield NAME


def _rows(samples: RunSamples) -> Iterator[list[object]]:
    yield list(SCHEMA.names)
    for members in samples.datasets.values():
        for member in members:
            yield [_cell(value) for value in row(samples, member).values()]


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


class _Line:
    """What ``csv`` writes to: keeps the last line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _line(values: list[object]) -> str:
    line = _Line()
    csv.writer(line).writerow(values)
    return line.text
