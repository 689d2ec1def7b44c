"""The same rows in every supported file format, and damaged files."""

import gzip
import json
import random

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.rows import local
from shared.errors import DataError

ROWS = [
    {
        "name": f"No. {number}",
        "text": "grün\r\n",
        "number": number,
        "limit": {"seconds": 2, "nanos": number} if number else None,
        "tags": ["a", ""],
        "tests": {"input": ["1\n"] * number, "output": ["2\n"] * number},
        "solutions": [{"language": 3, "solution": "x"}] * number,
    }
    for number in range(4)
]
COLUMNS = tuple(ROWS[0])
_LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def parquet(path):
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=3)


FORMS = {
    "lines.jsonl": lambda path: path.write_bytes(_LINES),
    "lines.jsonl.gz": lambda path: path.write_bytes(gzip.compress(_LINES)),
    "array.json": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "array.json.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS).encode())),
    "table.parquet": parquet,
}


def fields(path, columns=COLUMNS):
    return [row for _, row in local.rows(str(path), columns)]


def test_every_form_gives_the_same_rows_at_their_places(tmp_path):
    places = {".jsonl": ":4", ".json": ": entry 4", ".parquet": ": row 4"}
    for name, write in FORMS.items():
        write(tmp_path / name)
        assert fields(tmp_path / name) == ROWS, name
        narrow = fields(tmp_path / name, ("tests", "nowhere", "name"))
        assert narrow == [{"name": row["name"], "tests": row["tests"]} for row in ROWS], name
        *_, (place, _) = local.rows(str(tmp_path / name), COLUMNS)
        form = f".{name.split('.')[1]}"
        assert place == f"{tmp_path / name}{places[form]}"


def test_json_lines_by_the_name_of_an_array(tmp_path):
    for name, content in (("a.json", _LINES), ("a.json.gz", gzip.compress(_LINES))):
        (tmp_path / name).write_bytes(content)
        assert fields(tmp_path / name) == ROWS
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8-sig")
    assert fields(tmp_path / "a.json") == ROWS


def test_a_folder_of_shards(tmp_path):
    for write, ending in ((parquet, "parquet"), (FORMS["lines.jsonl"], "jsonl")):
        folder = tmp_path / ending
        folder.mkdir()
        for name in ("b", "a"):
            write(folder / f"{name}.{ending}")
        (folder / "README.md").write_text("x")
        shards = [str(folder / f"{name}.{ending}") for name in ("a", "b")]
        assert local.files(str(folder)) == local.files(f"{folder}/") == shards
        assert fields(folder) == ROWS * 2
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "data-00000-of-00001.arrow").touch()
    with pytest.raises(DataError, match=r"the folder has no \*.parquet or \*.jsonl"):
        fields(tmp_path / "saved")


def test_a_list_of_dropped_rows_beside_parquet_is_no_data(tmp_path):
    parquet(tmp_path / "a.parquet")
    FORMS["lines.jsonl"](tmp_path / "a.dropped.jsonl")
    assert local.files(str(tmp_path)) == [str(tmp_path / "a.parquet")]


def test_urls(tmp_path):
    for name, write in FORMS.items():
        write(tmp_path / name)
        fsspec.filesystem("memory").pipe(str(tmp_path / name), (tmp_path / name).read_bytes())
        for scheme in ("memory:/", "file://"):
            assert fields(f"{scheme}{tmp_path}/{name}") == ROWS, (scheme, name)


# Damaged files: rows, or one line that names the file, without a hang

_fuzz = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
_CASES = 40  # of each form
_BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def attempt(path, columns=COLUMNS):
    """Count the rows; a damaged file has no more than the whole file a few times over."""
    count = 0
    try:
        for _, row in local.rows(str(path), columns):
            count += 1
            assert isinstance(row, dict)
            assert count < 100 * len(ROWS)
    except DataError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert len(message.splitlines()) == 1
    return count


def damaged(content, chance):
    """Cut off somewhere, or with some bytes changed."""
    if chance.random() < 0.3:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3, 20))):
        changed[chance.randrange(len(content))] = chance.choice((*_BYTES, chance.randrange(256)))
    return bytes(changed)


@pytest.mark.parametrize("name", FORMS)
def test_damaged_files(tmp_path, name):
    path = tmp_path / name
    FORMS[name](path)
    whole = path.read_bytes()
    chance = random.Random(name)
    for case in range(_CASES):
        path.write_bytes(damaged(whole, chance))
        attempt(path, ("name", "tests") if case % 2 else COLUMNS)
    path.write_bytes(whole)
    assert attempt(path) == len(ROWS)


@given(
    content=st.binary() | st.binary().map(b"\x1f\x8b".__add__) | st.binary().map(b"PAR1".__add__),
    name=st.sampled_from([*FORMS, "bare", "a.parquet.gz"]),
)
@_fuzz
def test_any_bytes(tmp_path, content, name):
    path = tmp_path / name
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    attempt(path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(entries=st.lists(st.dictionaries(st.text(), _JSON, max_size=4), max_size=4))
@_fuzz
def test_json_lines_and_an_array_of_them_are_the_same(tmp_path, entries):
    texts = [json.dumps(entry) for entry in entries]
    (tmp_path / "a.jsonl").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "a.json").write_text(f"[{','.join(texts)}]")
    names = {name for entry in entries for name in entry}
    lines = [repr(row) for _, row in local.rows(str(tmp_path / "a.jsonl"), names)]
    array = [repr(row) for _, row in local.rows(str(tmp_path / "a.json"), names)]
    assert lines == array == [repr(json.loads(text)) for text in texts]
