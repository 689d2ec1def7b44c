"""The committed manifests and report of the demo data match `plumb data prepare`."""

from pathlib import Path

import pytest

from services.data.check import check
from services.data.config import PrepareConfig
from services.data.prepare.pipeline import prepare
from shared.config_files import load_document, validate_document
from shared.datasets import read_dataset
from shared.manifests import LOCK_NAME, load_lock
from tests.data.prepare.support import Silent

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "demo" / "data_manifests"
COMMANDS = (
    "plumb data prepare --config configs/data_demo.yaml",
    "plumb data check --config configs/data_demo.yaml",
)


@pytest.fixture(scope="module")
def config():
    return validate_document(PrepareConfig, load_document(ROOT / "configs" / "data_demo.yaml"))


@pytest.fixture
def rebuilt(config, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folders = {"output": "eval", "manifests": "manifests", "raw": "raw"}
    moved = {key: str(tmp_path / name) for key, name in folders.items()}
    prepare(config.model_copy(update=moved), Silent(), commands=COMMANDS)
    return tmp_path


def test_manifests_lists_and_report(rebuilt):
    made = {path.name: path.read_bytes() for path in (rebuilt / "manifests").iterdir()}
    committed = {path.name: path.read_bytes() for path in COMMITTED.iterdir()}
    # The bytes of a parquet file are those of the library's version that wrote it.
    made.pop(LOCK_NAME)
    committed.pop(LOCK_NAME)
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == []


def test_problems(config, rebuilt):
    for name in config.datasets:
        made = read_dataset(str(rebuilt / "eval" / f"{name}.parquet"))
        assert made == read_dataset(str(ROOT / "demo" / "data" / f"{name}.parquet"))


def test_the_lock_is_of_the_committed_files(config):
    lock = load_lock(str(COMMITTED / LOCK_NAME))
    assert {f"{name}.parquet" for name in config.datasets} < lock.files.keys()
    files = sorted((ROOT / "demo" / "data").glob("*.parquet"))
    assert check(files, COMMITTED, config.allow, {}).ok
