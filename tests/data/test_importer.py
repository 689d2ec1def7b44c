import gzip
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.config import LayoutKind
from shared.datasets import read_dataset
from shared.errors import DataError
from tests.data.layouts.rows import humaneval
from tests.data.support import import_failure, import_rows, write_lines

ROW = humaneval()


def test_an_output_that_ends_in_parquet_is_the_file(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW])
    result = import_rows("humaneval", source, tmp_path / "deep" / "my.parquet")
    assert result.path == str(tmp_path / "deep" / "my.parquet")
    assert len(read_dataset(result.path)) == 1


def test_a_failure_leaves_the_earlier_output(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW])
    result = import_rows("humaneval", source, tmp_path / "out")
    before = Path(result.path).read_bytes()
    for line, cause in (
        (b"nonsense\n", ":2: not JSON"),
        (b'{"task_id": "tor', ":2: torn last line"),
        (b"\xff\n", ":2: not UTF-8"),
        (b"{}\n", ":2: task_id: Field required"),
        (ROW, ":2: duplicate problem 'HumanEval/0', also at "),
    ):
        write_lines(tmp_path / "h.jsonl", [ROW, line])
        message = import_failure("humaneval", source, tmp_path / "out")
        assert message.startswith(f"{source}{cause}")
        assert Path(result.path).read_bytes() == before
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["humaneval.parquet"]


def test_the_source_is_never_replaced(tmp_path):
    rows = write_lines(tmp_path / "h.jsonl", [ROW])
    source = Path(import_rows("humaneval", rows, tmp_path / "out").path)
    before = source.read_bytes()
    for path in (source, source.parent):
        message = import_failure("jsonl", str(path), source.parent, name="humaneval")
        assert message.startswith(f"{source}: the source is this file")
    assert source.read_bytes() == before


def test_sources_that_are_missing_empty_or_damaged(tmp_path):
    missing = str(tmp_path / "none.jsonl")
    empty = write_lines(tmp_path / "empty.jsonl", [b"\n"])
    cut = tmp_path / "x.jsonl.gz"
    cut.write_bytes(gzip.compress(b" \n" * 50_000)[:-9])
    for kind in LayoutKind:
        message = import_failure(kind, missing, tmp_path / "out")
        assert message.startswith(f"{missing}: no such file")
        message = import_failure(kind, empty, tmp_path / "out")
        assert message.startswith(f"{empty}: it has no problem (no rows)")
        message = import_failure(kind, str(cut), tmp_path / "out")
        assert message.startswith(f"{cut}:")
        assert "gzip data is truncated" in message
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_file_name_is_refused(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW])
    for name in ("a/b", "..", "a b", "ä"):
        message = import_failure("humaneval", source, tmp_path / "out", name=name)
        assert f"the data set's name {name!r} may only have" in message
    assert not (tmp_path / "out").exists()


def _attempt(kind, path, output):
    try:
        import_rows(kind, str(path), output)
    except DataError as error:
        assert str(path) in str(error)
        assert len(str(error).splitlines()) == 1


_fuzz = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


_TESTS = st.fixed_dictionaries(
    {"input": st.lists(st.text(), max_size=2), "output": st.lists(st.text(), max_size=2)}
)
_VALUE = st.one_of(
    st.none(),
    st.integers(),
    st.text(st.characters()),
    st.lists(st.text(), max_size=2),
    _TESTS,
    st.just({"inputs": ["1"], "outputs": ["2"]}),
)
_FIELDS = [
    "task_id", "prompt", "entry_point", "test", "text", "test_list", "test_setup_code", "name",
    "description", "difficulty", "public_tests", "private_tests", "dataset", "split",
    "problem_id", "data_source", "ground_truth", "sandbox_dataset", "sandbox_id",
]  # fmt: skip


@given(
    kind=st.sampled_from(LayoutKind),
    rows=st.lists(st.fixed_dictionaries(dict.fromkeys(_FIELDS, _VALUE)), max_size=3),
)
@_fuzz
def test_any_rows_give_a_data_set_or_a_data_error(tmp_path, kind, rows):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _attempt(kind, path, tmp_path / "out.parquet")
