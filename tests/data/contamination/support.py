"""Fixtures: problems to leak, clean text around them, and corpora in every format."""

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.data.contamination.check import check_contamination
from services.data.records import ProblemText
from shared.errors import DataError

PROMPT = """\
Given a list of harbour fees, return the three ships that paid the least per day of their stay.
A ship that left on the day of its arrival stayed for one whole day. Ties go to the older ship,
and a ship without a name is never among the three, whatever it paid.
"""
SOLUTION = """\
def cheapest(ships):
    named = [ship for ship in ships if ship.name]
    named.sort(key=lambda ship: (ship.fee / max(ship.days, 1), -ship.age))
    return named[:3]
"""
LEAKED = ProblemText("demo", "leaked", PROMPT, (SOLUTION,))
OTHER = ProblemText(
    "demo",
    "other",
    "Count the lanterns of a street whose light reaches at least two neighbouring doors, when "
    "every second lantern from the left has been out since the storm of last winter.",
    ("def count(doors): return sum(1 for d in doors if reach(d) >= 2 and d.number % 2 == 0)",),
)
PROBLEMS = [LEAKED, OTHER]


def clean_text(count, seed=0):
    """Words of the problems in a random order, so that only n-grams can tell."""
    texts = [text for problem in PROBLEMS for text in (problem.statement, *problem.solutions)]
    words = [word for text in texts for word in text.split()]
    return " ".join(random.Random(seed).choices(words, k=count))


def clean_rows(count, seed=0):
    return [{"id": at, "text": clean_text(60, seed * 1000 + at)} for at in range(count)]


def check(*corpora, problems=PROBLEMS, processes=1, **options):
    return check_contamination(
        problems, [str(path) for path in corpora], processes=processes, **options
    )


def one(report, problem_id="leaked"):
    return next(problem for problem in report.problems if problem.problem_id == problem_id)


def failure(*corpora, **options):
    with pytest.raises(DataError) as caught:
        check(*corpora, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def write_jsonl(path, rows):
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    packed = {".gz": gzip.compress, ".zst": _zstd}.get(path.suffix, bytes)(content)
    path.write_bytes(packed)
    return path


def write_parquet(path, rows, schema=None, row_group_size=None):
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=row_group_size)
    return path


def _zstd(content):
    return pa.compress(content, "zstd", asbytes=True)
