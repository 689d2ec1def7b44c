import json

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.data.rows import local
from shared.errors import DataError
from tests.data.rows.samples import FORMS, ROWS, arrow_stream, json_lines, parquet, saved


def fields(path, columns=None):
    return [row for _, row in local.rows(str(path), columns)]


def failure(path, columns=None):
    with pytest.raises(DataError) as caught:
        fields(path, columns)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows(tmp_path, name):
    FORMS[name](tmp_path / name)
    assert fields(tmp_path / name) == ROWS


@pytest.mark.parametrize("name", FORMS)
def test_only_the_wanted_columns_that_there_are(tmp_path, name):
    FORMS[name](tmp_path / name)
    found = fields(tmp_path / name, ("tests", "nowhere", "name"))
    assert found == [{"name": row["name"], "tests": row["tests"]} for row in ROWS]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("lines.jsonl", "lines.jsonl:4"),
        ("array.json", "array.json: entry 4"),
        ("table.parquet", "table.parquet: row 4"),
        ("stream.arrow", "stream.arrow: row 4"),
        ("file.arrow", "file.arrow: row 4"),
        ("saved", "saved/data-a.arrow: row 1"),
    ],
)
def test_places_name_file_and_row(tmp_path, name, last):
    FORMS[name](tmp_path / name)
    *_, (place, _) = local.rows(str(tmp_path / name), None)
    assert place == str(tmp_path / last)


def test_what_datasets_saves(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_list(ROWS)
    one.save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert fields(tmp_path / "one") == ROWS
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(str(tmp_path / "both"))
    message = failure(tmp_path / "both")
    expected = "the folder has several splits; name the folder of one: train, test"
    assert message == f"{tmp_path / 'both'}: {expected}"
    assert fields(tmp_path / "both" / "test") == ROWS


@pytest.mark.parametrize(
    ("write", "ending"),
    [(parquet, "parquet"), (arrow_stream, "arrow"), (json_lines, "jsonl")],
)
def test_a_folder_of_shards(tmp_path, write, ending):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.{ending}")
    (tmp_path / "README.md").write_text("x")
    shards = [str(tmp_path / f"{name}.{ending}") for name in ("a", "b")]
    assert local.files(str(tmp_path)) == local.files(f"{tmp_path}/") == shards
    assert fields(tmp_path) == ROWS * 2


def test_a_list_of_dropped_rows_beside_parquet_is_no_data(tmp_path):
    parquet(tmp_path / "a.parquet")
    json_lines(tmp_path / "a.dropped.jsonl")
    assert local.files(str(tmp_path)) == [str(tmp_path / "a.parquet")]


@pytest.mark.parametrize("scheme", ["memory:/", "file://"])
@pytest.mark.parametrize("name", ["lines.jsonl", "lines.jsonl.gz", "array.json", "table.parquet"])
def test_urls(tmp_path, scheme, name):
    FORMS[name](tmp_path / name)
    if scheme == "memory:/":
        fsspec.filesystem("memory").pipe(str(tmp_path / name), (tmp_path / name).read_bytes())
    assert fields(f"{scheme}{tmp_path}/{name}") == ROWS
    assert fields(f"{scheme}{tmp_path}/{name}", ["number"])[3] == {"number": 3}


def test_arrow_is_read_from_a_local_disk_alone(tmp_path):
    arrow_stream(tmp_path / "a.arrow")
    assert fields(f"file://{tmp_path}/a.arrow") == ROWS
    assert "copy the file to a local disk" in failure("memory://a.arrow")


def test_folders_that_cannot_be_used(tmp_path):
    assert "the folder has no *.parquet, *.arrow or *.jsonl" in failure(tmp_path)
    (tmp_path / "x.parquet").mkdir()
    assert "the folder has no *.parquet" in failure(tmp_path)
    assert "no such file" in failure(tmp_path / "nowhere.arrow")
    assert "no such file" in failure(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("{", "Invalid JSON"),
        ("{}", "_data_files: Field required"),
        ('{"_data_files": [{"filename": "../other.arrow"}]}', "_data_files.0.filename: String"),
        ('{"_data_files": [{"filename": "state.json"}]}', "_data_files.0.filename: String"),
    ],
)
def test_a_broken_state_is_named(tmp_path, state, cause):
    saved(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(state)
    message = failure(tmp_path / "saved")
    assert message.startswith(f"{tmp_path}/saved/state.json: {cause}")


def test_a_lost_shard_is_named(tmp_path):
    saved(tmp_path / "saved")
    (tmp_path / "saved" / "data-a.arrow").unlink()
    assert failure(tmp_path / "saved").startswith(f"{tmp_path}/saved/data-a.arrow: no such file")


def test_a_stream_that_breaks_off_between_two_batches_is_not_whole(tmp_path):
    table = pa.table({"a": [1, 2]})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file:
        writer = pa.ipc.new_stream(file, table.schema)
        writer.write_table(table)
        size = file.tell()
        writer.close()
    assert fields(tmp_path / "a.arrow") == [{"a": 1}, {"a": 2}]
    with (tmp_path / "a.arrow").open("r+b") as file:
        file.truncate(size)
    assert "not a complete Arrow file (it is truncated)" in failure(tmp_path / "a.arrow")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_that_cannot_be_told_apart_or_are_not_there(tmp_path, ending):
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    assert "two columns 'a'" in failure(path)
    assert fields(path, ["b"]) == [{"b": 3}]
    assert failure(path, ["c"]) == f"{path}: none of the columns c; it has: a, a, b"


@pytest.mark.parametrize("name", ["stream.arrow", "file.arrow", "table.parquet"])
def test_a_file_of_another_form_is_named(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps(ROWS))
    assert failure(path).startswith(f"{path}: not a ")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_text_that_is_not_utf8_is_named(tmp_path, ending):
    raw = pa.array([b"ok", b"\xff"]).cast(pa.binary())
    table = pa.table({"a": pa.Array.from_buffers(pa.string(), 2, raw.buffers())})
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    message = failure(path)
    expected = {"parquet": "row 2: cannot be read (UnicodeDecodeError", "arrow": "Invalid UTF8"}
    assert expected[ending] in message
