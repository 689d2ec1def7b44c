import json

import pytest

from services.data.check import check
from services.data.records import write_dataset
from shared.datasets import read_dataset
from shared.manifests import LOCK_NAME
from tests.data.prepare.support import PROMPTS, Desk, row


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.source("one", [row(0), row(1)])
    desk.source("two", [row(2)])
    desk.prepare()
    return desk


def checked(desk, **options):
    files = [desk.data(name) for name in ("one", "two")]
    return check(files, desk.manifests, None, **options)


def test_what_was_prepared_is_as_it_was(desk):
    result = checked(desk)
    assert result.ok
    assert result.problems == 3


def change(desk, **fields):
    """Another first problem in the file of set one."""
    first, *rest = read_dataset(str(desk.data("one")))
    write_dataset(str(desk.data("one")), [first.model_copy(update=fields), *rest])


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda desk: change(desk, prompt="Another."), "prompt_sha256 does not match the prompt"),
        (lambda desk: change(desk, difficulty="hard"), "has SHA-256"),
        (lambda desk: edit(desk.manifests / "one.jsonl", '"ok"', '"fine"'),
         "one.jsonl has SHA-256"),
        (
            lambda desk: edit(
                desk.manifests / LOCK_NAME, '"canonical_version": "', '"canonical_version": "0'
            ),
            "of the canonical form",
        ),
        (lambda desk: (desk.manifests / "two.jsonl").write_bytes(b""), "two.jsonl has "),
    ],
)  # fmt: skip
def test_what_has_changed_is_named(desk, fault, said):
    fault(desk)
    result = checked(desk)
    assert not result.ok
    assert any(said in difference for difference in result.differences)


def test_an_overlap_that_came_in_is_found(desk):
    third = read_dataset(str(desk.data("two")))[0]
    first = read_dataset(str(desk.data("one")))[0]
    copied = {"prompt": PROMPTS[0], "prompt_sha256": first.prompt_sha256}
    write_dataset(str(desk.data("two")), [third.model_copy(update=copied)])
    (overlap,) = checked(desk).reviewed.open
    assert (overlap.a.name, overlap.b.name) == ("one/p0", "two/p2")


def test_splits_of_one_name_are_compared_and_shards_are_not(desk):
    names = ("train.parquet", "test.parquet", "a-0-of-2.parquet", "a-1-of-2.parquet")
    train, test, *shards = [str(desk.folder / name) for name in names]
    for file in (train, test, *shards):
        write_dataset(file, read_dataset(str(desk.data("two"))))
    (overlap,) = check([train, test], None, None).reviewed.open
    assert (overlap.a.name, overlap.b.name) == ("two/p2", f"two of {test}/p2")
    assert check(shards, None, None).ok


def test_files_without_manifests_are_compared_alone(desk):
    (desk.manifests / LOCK_NAME).unlink()
    result = check([desk.data("one"), desk.data("two")], None, None)
    assert result.ok
    lock = json.dumps({"canonical_version": "2", "files": {}})
    (desk.manifests / LOCK_NAME).write_text(lock)
    assert len(checked(desk).differences) == 2
