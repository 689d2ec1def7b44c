import json

import pytest

from services.data.importer import import_dataset
from services.data.layouts.base import Options
from shared.errors import DataError
from shared.manifests import LOCK_NAME, DataRole, dataset_roles, manifest_folder
from tests.data.prepare.support import Desk, row

TRAIN, EVAL = DataRole.TRAIN, DataRole.EVAL


def write_manifest(folder, lines, *, name="set.jsonl"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOCK_NAME).write_text("{}")
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_roles_of_prepared_sets(tmp_path):
    desk = Desk(tmp_path)
    desk.manifests = tmp_path / "data_manifests"
    desk.keys = {"manifests": str(desk.manifests)}
    desk.source("one", [row(0), row(1)], role="train")
    desk.source("two", [row(2)])
    desk.prepare()
    assert dataset_roles(str(desk.data("one"))) == {"one": TRAIN}
    assert dataset_roles(str(desk.data("two"))) == {"two": EVAL}
    assert manifest_folder(str(desk.data("one"))) == str(desk.manifests)
    # A manifest of an evaluation set is as it was before there were roles.
    assert all("role" not in line for line in desk.listed("two"))


def test_role_of_an_imported_set(tmp_path):
    source = Desk(tmp_path).source("rows", [row(0)])
    # The manifest must not replace the source, even if both lie in one folder.
    output, text = tmp_path / "rows.parquet", source.read_text()
    path = import_dataset("jsonl", str(source), output, Options(), TRAIN).path
    assert dataset_roles(str(path)) == {"set": TRAIN}
    assert source.read_text() == text
    import_dataset("jsonl", str(source), output, Options())
    assert dataset_roles(str(path)) == {}


@pytest.mark.parametrize("folder", [".", "data_manifests", "../data_manifests"])
def test_places_of_manifests(tmp_path, folder):
    data = tmp_path / "data" / "eval"
    data.mkdir(parents=True)
    assert manifest_folder(str(data / "set.parquet")) is None
    assert dataset_roles(str(data / "set.parquet")) == {}
    write_manifest(data / folder, [{"dataset": "set", "role": "train"}])
    assert dataset_roles(str(data / "set.parquet")) == {"set": TRAIN}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"dataset": "set", "role": "train"}, {"dataset": "set"}], ":2: data set 'set' is for"),
        ([{"dataset": "set", "role": "test"}], "not a line of a manifest (role: "),
        ([{"role": "train"}], "not a line of a manifest (dataset: "),
    ],
)
def test_manifests_that_cannot_be_used(tmp_path, lines, said):
    write_manifest(tmp_path, lines)
    with pytest.raises(DataError) as caught:
        dataset_roles(str(tmp_path / "set.parquet"))
    assert said in str(caught.value)
