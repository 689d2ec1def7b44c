"""Unreadable corpora: an error of one line that names the place."""

import codecs
import gzip
import json
import multiprocessing
import os
import random

import fsspec
import pyarrow as pa
import pytest

from services.data.contamination import corpus
from services.data.contamination.check import check_contamination
from shared.errors import DataError
from tests.data.contamination.support import (
    PROMPT,
    check,
    clean_rows,
    clean_text,
    failure,
    one,
    write_jsonl,
    write_parquet,
)

GOOD = json.dumps({"t": clean_text(50)}).encode() + b"\n"
BROKEN = {
    b'{"t": "torn': "not JSON",
    b"{'t': 1}\n": "not JSON",
    b'{"t": "caf\xe9"}\n': "not UTF-8 (byte 11 of the line)",
    b'\xff\xfe{\x00"\x00': "not UTF-8",
    b"[" * 100_000 + b"\n": "JSON that cannot be used",
    b'{"t": ' + b"9" * 5000 + b"}\n": "JSON that cannot be used",
}


def test_a_broken_line_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK", 1000)
    for line, cause in BROKEN.items():
        content = GOOD * 2 + b"\n" + GOOD * 20 + line
        for name, packed in (("c.jsonl", content), ("c.jsonl.gz", gzip.compress(content))):
            (tmp_path / name).write_bytes(packed)
            message = failure(tmp_path / name)
            assert message.startswith(f"{tmp_path / name}:24: {cause}"), message


def test_byte_order_marks(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [*clean_rows(3), {"text": PROMPT}])
    path.write_bytes((codecs.BOM_UTF8 + path.read_bytes()) * 2)  # two files, one after the other
    assert one(check(path)).contaminated


def test_a_text_file_that_is_not_utf8(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"fine\n" * 300_000 + b"caf\xe9\n")
    assert failure(path) == f"{path}:300001: not UTF-8; convert the file"
    path.write_bytes(b"fine\n" + "é".encode()[:1])
    assert failure(path).startswith(f"{path}:2: not UTF-8")


def test_parquet_that_cannot_be_used(tmp_path):
    path = write_parquet(tmp_path / "c.parquet", [{"tokens": [1, 2], "raw": b"x"}])
    assert "no column has text (tokens: list<" in failure(path)
    path = write_parquet(tmp_path / "c.parquet", [], pa.schema({"t": pa.string()}))
    assert "has no text" in failure(path)
    cut = write_parquet(path, clean_rows(50)).read_bytes()[:-30]
    for content in (b"", b"PAR1", b"no parquet" * 100, cut):
        path.write_bytes(content)
        assert str(path) in failure(path)


def test_what_names_no_corpus(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "c.csv").write_text("a,b\n")
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name, cause in {
        "missing.jsonl": "no such file",
        "*.jsonl": "no such file",
        "empty": "the folder is empty",
        "c.csv": "unknown format; supported are .jsonl",
        "pipe.jsonl": "neither a file nor a folder",
    }.items():
        assert failure(tmp_path / name).startswith(f"{tmp_path / name}: {cause}")
    assert "no corpus given" in failure()
    with pytest.raises(DataError, match="no evaluation problems given"):
        check_contamination([], [str(tmp_path)])


def test_files_of_a_folder(tmp_path):
    """Links are followed, a file counts once, and one of an unknown format is listed."""
    (tmp_path / "sub").mkdir()
    path = write_jsonl(tmp_path / "sub" / "c [1] ö.jsonl", [{"t": PROMPT}])
    (tmp_path / "LICENSE").write_text(PROMPT)
    report = check(path, tmp_path, path)
    assert report.skipped == (str(tmp_path / "LICENSE"),)
    assert (report.files, report.documents, one(report).documents) == (1, 1, 1)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "l.jsonl").symlink_to(path)
    assert one(check(tmp_path / "linked")).contaminated


def test_secrets_of_a_corpus_are_not_in_the_report(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PROMPT}])
    memory = fsspec.filesystem("memory")
    for name in ("c.jsonl", "LICENSE"):
        memory.pipe(f"/user:topsecret@bucket/{name}", path.read_bytes())
    report = check("memory://user:topsecret@bucket")
    assert one(report).statement.hit.path.endswith("***@bucket/c.jsonl")
    assert "topsecret" not in json.dumps(report.document())


def test_a_killed_process_is_an_error(tmp_path):
    text = clean_text(20_000)
    for number in range(12):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"t": text}])

    def kill(_done, _total):
        for child in multiprocessing.active_children():
            child.kill()

    message = failure(tmp_path, processes=2, progress=kill)
    assert "a worker process was killed" in message
    assert "perhaps out of memory; try again with fewer processes" in message


def test_any_damage_is_an_error_or_a_report(tmp_path):
    dice = random.Random(1)
    for name in ("c.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.txt.bz2", "c.parquet"):
        path = tmp_path / name
        (write_parquet if name.endswith("parquet") else write_jsonl)(path, clean_rows(30))
        content = path.read_bytes()
        for _ in range(15):
            changed = bytearray(content)
            if dice.random() < 0.5:
                changed = changed[: dice.randrange(len(content))]
            for _ in range(dice.randrange(4)):
                changed[dice.randrange(len(changed) or 1) : 1] = bytes([dice.randrange(256)])
            path.write_bytes(changed)
            try:
                assert check(path).files == 1
            except DataError as error:
                assert str(error).startswith(str(path))
                assert len(str(error).splitlines()) == 1
