"""Unreadable corpora: an error of one line that names the place."""

import gzip
import json
import multiprocessing
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.contamination.check import check_contamination
from services.data.contamination.files import BufferSizes
from shared.errors import DataError
from tests.data.contamination.support import (
    PROBLEMS,
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


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b'{"t": "torn', "not JSON"),
        (b"{'t': 1}\n", "not JSON"),
        (b'{"t": "caf\xe9"}\n', "not UTF-8 (byte 11 of the line)"),
        (b'\xff\xfe{\x00"\x00', "not UTF-8"),
        (b"[" * 100_000 + b"\n", "JSON that cannot be used"),
        (b'{"t": ' + b"9" * 5000 + b"}\n", "JSON that cannot be used"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_broken_line_is_named(tmp_path, line, cause, suffix):
    content = GOOD * 2 + b"\n" + GOOD * 20 + line
    path = tmp_path / f"c{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    message = failure(path, sizes=BufferSizes(part=1000))
    assert message.startswith(f"{path}:24: {cause}")


def test_of_several_broken_lines_the_first_is_named_by_any_number_of_processes(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(GOOD * 5 + b"nonsense\n" + GOOD)
    messages = {failure(tmp_path, processes=count) for count in (1, 3)}
    assert len(messages) == 1
    assert f"{tmp_path / 'a.jsonl'}:6: not JSON" in messages.pop()


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compression(tmp_path, suffix, damage):
    path = write_jsonl(tmp_path / f"c{suffix}", clean_rows(2000))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    path.write_bytes(content)
    message = failure(path)
    assert "truncated or damaged" in message or "not JSON" in message or "not UTF-8" in message
    assert message.startswith(f"{path}:")


def test_damage_names_the_line_up_to_which_all_was_read(tmp_path):
    content = b"".join(b"%d\n" % number for number in range(500_000))
    path = tmp_path / "c.txt.gz"
    path.write_bytes(gzip.compress(content)[:-4])
    line, cause = failure(path).removeprefix(f"{path}:").split(": ", 1)
    assert 300_000 < int(line) <= 500_000
    assert cause.startswith("the gzip data is truncated or damaged soon after")


def test_a_text_file_that_is_not_utf8(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"fine\n" * 300_000 + b"caf\xe9\n")
    assert failure(path) == f"{path}:300001: not UTF-8; convert the file"


def test_a_text_file_that_ends_in_half_a_character(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"fine\n" + "é".encode()[:1])
    assert failure(path).startswith(f"{path}:2: not UTF-8")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"1\n[]\n{}\n"])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_file_without_text(tmp_path, content, suffix):
    path = tmp_path / f"c{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert "has no text" in failure(path)


@pytest.mark.parametrize("name", ["c.txt", "c.jsonl.gz", "c.jsonl.zst"])
def test_an_empty_file(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    assert str(tmp_path / name) in failure(tmp_path / name)


def test_parquet_without_a_column_of_text(tmp_path):
    path = write_parquet(tmp_path / "c.parquet", [{"tokens": [1, 2], "raw": b"x"}])
    assert "no column has text (tokens: list<" in failure(path)


def test_parquet_without_rows(tmp_path):
    path = write_parquet(tmp_path / "c.parquet", [], pa.schema({"t": pa.string()}))
    assert "has no text" in failure(path)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_of_text(tmp_path, kind):
    schema = pa.schema({"n": pa.int64(), "t": kind})
    path = write_parquet(tmp_path / "c.parquet", [{"n": 1, "t": PROMPT}], schema)
    assert one(check(path)).contaminated


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet" * 100])
def test_what_is_not_parquet(tmp_path, content):
    (tmp_path / "c.parquet").write_bytes(content)
    assert str(tmp_path / "c.parquet") in failure(tmp_path / "c.parquet")


def test_parquet_cut_off(tmp_path):
    path = write_parquet(tmp_path / "c.parquet", clean_rows(50))
    path.write_bytes(path.read_bytes()[:-30])
    assert str(path) in failure(path)


def test_parquet_with_damaged_pages(tmp_path):
    path = tmp_path / "c.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.Table.from_pylist(clean_rows(500)), path, **plain)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 10] = b"otherwords"
    path.write_bytes(content)
    assert str(path) in failure(path)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("missing.jsonl", "no such file"),
        ("*.jsonl", "no such file"),
        ("empty", "the folder is empty"),
        ("c.csv", "unknown format; supported are .jsonl"),
        ("pipe.jsonl", "neither a file nor a folder"),
    ],
)
def test_what_names_no_corpus(tmp_path, name, cause):
    (tmp_path / "empty").mkdir()
    (tmp_path / "c.csv").write_text("a,b\n")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert failure(tmp_path / name).startswith(f"{tmp_path / name}: {cause}")


def test_files_of_unknown_formats_in_a_folder_are_listed(tmp_path):
    (tmp_path / "sub").mkdir()
    write_jsonl(tmp_path / "sub" / "c.jsonl", [{"t": PROMPT}])
    (tmp_path / "LICENSE").write_text(PROMPT)
    report = check(tmp_path)
    assert report.skipped == (str(tmp_path / "LICENSE"),)
    assert report.files == 1


def test_a_file_that_is_named_twice_counts_once(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PROMPT}])
    report = check(path, tmp_path, tmp_path / "*.jsonl")
    assert (report.files, report.documents, one(report).documents) == (1, 1, 1)


@pytest.mark.parametrize("name", ["c[1].jsonl", "c d.jsonl", "ö.jsonl"])
def test_odd_names(tmp_path, name):
    path = write_jsonl(tmp_path / name, [{"t": PROMPT}])
    assert one(check(path)).contaminated


def test_links_are_followed(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PROMPT}])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "l.jsonl").symlink_to(path)
    assert one(check(tmp_path / "linked")).contaminated


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


def test_nothing_given(tmp_path):
    assert "no corpus given" in failure()
    with pytest.raises(DataError, match="no evaluation problems given"):
        check_contamination([], [str(tmp_path)])


def test_a_line_has_a_greatest_length(tmp_path):
    sizes = BufferSizes(line=1 << 20)
    path = tmp_path / "c.jsonl"
    long = json.dumps({"t": PROMPT * 5_000}).encode()
    path.write_bytes(GOOD + long[: (1 << 20) - 2] + b'"}\n')
    assert one(check(path, sizes=sizes)).statement.hit.row == 2
    path.write_bytes(GOOD + long + b"\n" + GOOD)
    assert failure(path, sizes=sizes).startswith(f"{path}:2: a line over 1 MiB; ")


READERS = ["c.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.txt", "c.txt.bz2", "c.parquet"]


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_an_error_or_a_report(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    _check_or_fail(tmp_path / name)


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst", "c.parquet"])
def test_any_damage_is_an_error_or_a_report(tmp_path, name):
    path = tmp_path / name
    (write_parquet if name.endswith("parquet") else write_jsonl)(path, clean_rows(30))
    content = path.read_bytes()
    dice = random.Random(1)
    for _ in range(15):
        changed = bytearray(
            content[: dice.randrange(len(content))] if dice.random() < 0.5 else content
        )
        for _ in range(dice.randrange(4)):
            changed[dice.randrange(len(changed) or 1) : 1] = bytes([dice.randrange(256)])
        path.write_bytes(changed)
        _check_or_fail(path)


def _check_or_fail(path):
    try:
        report = check(path, problems=PROBLEMS)
    except DataError as error:
        assert str(error).startswith(str(path))
        assert len(str(error).splitlines()) == 1
    else:
        assert report.files == 1
