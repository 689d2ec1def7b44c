import json

import pytest

from services.data.records import write_dataset
from services.runner.preflight import load_problems
from shared.config import DataConfig
from shared.errors import DataError
from shared.manifests import DataLock, hash_file
from shared.run_record import DataLockCheck
from tests.shared.ledgers import problem


@pytest.fixture
def data(tmp_path):
    problems = [
        problem(f"p{number}", quality=quality)
        for number, quality in enumerate(
            ["ok", "duplicate_tests", "duplicate_tests,large_output", ""]
        )
    ]
    path = tmp_path / "set.parquet"
    write_dataset(str(path), problems)
    return path


@pytest.fixture
def lock(data, tmp_path):
    path = tmp_path / "manifest.lock.json"
    locked = DataLock(canonical_version="2", files={data.name: hash_file(str(data))})
    path.write_text(locked.model_dump_json())
    return path


def load(data, allow_unlocked=False, **keys):
    return load_problems(DataConfig(**keys), [str(data)], allow_unlocked=allow_unlocked)


def test_data_that_agree_with_the_lock(data, lock):
    loaded = load(data, lock=str(lock))
    assert len(loaded.problems) == 4
    expected = DataLockCheck(path=str(lock), canonical_version="2")
    assert loaded.provenance.data_lock == expected
    assert loaded.notes == ()


EMPTY_LOCK = json.dumps({"canonical_version": "2", "files": {}})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda data, _: write_dataset(str(data), [problem("other")]), "has SHA-256"),
        (lambda _, lock: lock.write_text(EMPTY_LOCK), "is not in the lock"),
        (lambda _, lock: lock.unlink(), "no such file"),
        (lambda _, lock: lock.write_text("{"), "not a lock of prepared data"),
    ],
)
def test_a_difference_is_refused_or_recorded(data, lock, fault, said):
    fault(data, lock)
    with pytest.raises(DataError, match=said) as caught:
        load(data, lock=str(lock))
    assert "--allow-unlocked" in str(caught.value)
    loaded = load(data, lock=str(lock), allow_unlocked=True)
    assert loaded.problems
    (difference,) = loaded.provenance.data_lock.differences
    assert said in difference
    assert loaded.notes == (f"warning: {difference}",)


def test_the_lock_holds_the_files_of_a_folder(data, lock):
    (data.parent / "more.parquet").write_bytes(data.read_bytes())
    with pytest.raises(DataError, match=r"more\.parquet is not in the lock"):
        load_problems(DataConfig(lock=str(lock)), [str(data.parent)], allow_unlocked=False)


def test_problems_are_left_out_by_quality_and_counted(data):
    loaded = load(data, exclude_quality=["large_output", "contradicting_tests"])
    assert [one.problem_id for one in loaded.problems] == ["p0", "p1", "p3"]
    dataset = loaded.problems[0].dataset
    assert loaded.provenance.left_out == {dataset: {"problems": 1, "large_output": 1}}
    assert loaded.notes == (f"{dataset}: 1 problems left out (large_output 1)",)


def test_not_all_of_a_data_set_is_left_out(tmp_path):
    path = tmp_path / "bad.parquet"
    write_dataset(str(path), [problem("p", quality="large_output")])
    with pytest.raises(DataError, match="leaves nothing of"):
        load(path, exclude_quality=["large_output"])
