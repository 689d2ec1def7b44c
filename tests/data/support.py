"""Helpers that write sources, and catch the importer's errors."""

import gzip
import json

import pytest

from services.data.config import parse_ids
from services.data.importer import ImportResult, import_dataset
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Options, Record
from services.data.records import text_of
from services.data.rows import local
from shared.datasets import read_dataset
from shared.errors import DataError


def write_lines(path, rows):
    """Write JSON lines, gzip where the name ends in .gz; bytes go in as a line of their own."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]
    content = b"".join(lines)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def import_rows(kind, source, output, ids=None, **options) -> ImportResult:
    """Import a source with options that are written as on the command line."""
    return import_dataset(kind, source, output, Options(ids=ids and parse_ids(ids), **options))


def import_failure(kind, source, output, **options):
    with pytest.raises(DataError) as caught:
        import_rows(kind, source, output, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def imported(kind, folder, *rows, **options):
    """The problems that the importer makes of these rows."""
    source = write_lines(folder / "source.jsonl", rows)
    return read_dataset(str(import_rows(kind, source, folder, **options).path))


def problems_of(kind, source):
    """The texts of the problems of a published file, with three solutions each."""
    layout = LAYOUTS[kind]
    chosen = Options(solutions=3, source=str(source))
    rows = local.rows(str(source), layout.columns(chosen))
    for row in layout.read(rows, chosen):
        if isinstance(row, Record):
            yield text_of(row)


def pairs_of(names: str) -> set[frozenset[str]]:
    return {frozenset(pair.split()) for pair in names.split(", ")}


# Of the public sets, by eye: the same question twice, or (as solutions) the same programme.
SAME_QUESTIONS = pairs_of(
    "HumanEval/56 HumanEval/61, mbpp_104 mbpp_569, mbpp_16 mbpp_43, mbpp_174 mbpp_653, "
    "mbpp_216 mbpp_872, mbpp_248 mbpp_704, mbpp_347 mbpp_76, mbpp_427 mbpp_928, "
    "mbpp_217 mbpp_602, mbpp_440 mbpp_584, mbpp_534 mbpp_607, mbpp_542 mbpp_732, "
    "mbpp_719 mbpp_930, mbpp_794 mbpp_879"
)
SAME_QUESTIONS.add(frozenset({
    "1582_F1. Korney Korneevich and XOR (easy version)",
    "1582_F2. Korney Korneevich and XOR (hard version)",
}))  # fmt: skip
SAME_SOLUTIONS = pairs_of(
    "HumanEval/31 HumanEval/59, mbpp_199 mbpp_388, mbpp_29 mbpp_842, mbpp_30 mbpp_338, "
    "mbpp_16 mbpp_43, mbpp_208 mbpp_759, mbpp_296 mbpp_841, mbpp_362 mbpp_658, mbpp_527 mbpp_767, "
    "mbpp_591 mbpp_625, mbpp_595 mbpp_699, mbpp_608 mbpp_67, mbpp_758 mbpp_779, mbpp_933 mbpp_965"
)
