import fsspec
import pytest

from services.data.rows import local
from shared.errors import DataError
from tests.data.rows.samples import FORMS, ROWS, arrow_stream, json_lines, parquet

COLUMNS = tuple(ROWS[0])


def fields(path, columns=COLUMNS):
    return [row for _, row in local.rows(str(path), columns)]


def failure(path, columns=COLUMNS):
    with pytest.raises(DataError) as caught:
        fields(path, columns)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_every_form_gives_the_same_rows_at_their_places(tmp_path):
    places = {
        "lines.jsonl": ":4",
        "lines.jsonl.gz": ":4",
        "array.json": ": entry 4",
        "array.json.gz": ": entry 4",
        "table.parquet": ": row 4",
        "stream.arrow": ": row 4",
        "file.arrow": ": row 4",
        "saved": "/data-00001-of-00002.arrow: row 1",
    }
    for name, write in FORMS.items():
        write(tmp_path / name)
        assert fields(tmp_path / name) == ROWS, name
        found = fields(tmp_path / name, ("tests", "nowhere", "name"))
        assert found == [{"name": row["name"], "tests": row["tests"]} for row in ROWS], name
        *_, (place, _) = local.rows(str(tmp_path / name), COLUMNS)
        assert place == f"{tmp_path / name}{places[name]}"


def test_what_datasets_saves(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_list(ROWS)
    one.save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert fields(tmp_path / "one") == ROWS
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(str(tmp_path / "both"))
    message = failure(tmp_path / "both")
    assert "the folder has several splits; name the folder of one" in message
    assert fields(tmp_path / "both" / "test") == ROWS


def test_a_folder_of_shards(tmp_path):
    for write, ending in ((parquet, "parquet"), (arrow_stream, "arrow"), (json_lines, "jsonl")):
        folder = tmp_path / ending
        folder.mkdir()
        for name in ("b", "a"):
            write(folder / f"{name}.{ending}")
        (folder / "README.md").write_text("x")
        shards = [str(folder / f"{name}.{ending}") for name in ("a", "b")]
        assert local.files(str(folder)) == local.files(f"{folder}/") == shards
        assert fields(folder) == ROWS * 2


def test_a_list_of_dropped_rows_beside_parquet_is_no_data(tmp_path):
    parquet(tmp_path / "a.parquet")
    json_lines(tmp_path / "a.dropped.jsonl")
    assert local.files(str(tmp_path)) == [str(tmp_path / "a.parquet")]


def test_urls(tmp_path):
    for name in ("lines.jsonl", "lines.jsonl.gz", "array.json", "table.parquet"):
        FORMS[name](tmp_path / name)
        fsspec.filesystem("memory").pipe(str(tmp_path / name), (tmp_path / name).read_bytes())
        for scheme in ("memory:/", "file://"):
            assert fields(f"{scheme}{tmp_path}/{name}") == ROWS, (scheme, name)


def test_arrow_is_read_from_a_local_disk_alone(tmp_path):
    arrow_stream(tmp_path / "a.arrow")
    assert fields(f"file://{tmp_path}/a.arrow") == ROWS
    assert "copy the file to a local disk" in failure("memory://a.arrow")
