"""Fuzzing of damaged files: rows, or one line that names the file, without a hang."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.rows import local
from shared.errors import DataError
from tests.data.rows.samples import FORMS, ROWS

_fuzz = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
_CASES = 40  # of each form
_BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def attempt(path, columns=tuple(ROWS[0])):
    """How many rows come out; what is damaged has no more than the whole file a few times over."""
    count = 0
    try:
        for _, fields in local.rows(str(path), columns):
            count += 1
            assert isinstance(fields, dict)
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
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = {file: file.read_bytes() for file in files}
    chance = random.Random(name)
    for case in range(_CASES):
        file = chance.choice(files)
        file.write_bytes(damaged(whole[file], chance))
        attempt(path, ("name", "tests") if case % 2 else tuple(ROWS[0]))
        file.write_bytes(whole[file])
    assert attempt(path) == len(ROWS)


@given(
    content=st.binary() | st.binary().map(b"\x1f\x8b".__add__) | st.binary().map(b"PAR1".__add__),
    name=st.sampled_from([name for name in FORMS if "." in name] + ["bare", "a.parquet.gz"]),
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
    lines = [repr(fields) for _, fields in local.rows(str(tmp_path / "a.jsonl"), names)]
    array = [repr(fields) for _, fields in local.rows(str(tmp_path / "a.json"), names)]
    assert lines == array == [repr(json.loads(text)) for text in texts]
