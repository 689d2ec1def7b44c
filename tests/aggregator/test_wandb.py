"""W&B logging with stand-ins of the library (broken, hanging), and with the real one."""

import base64
import importlib.metadata
import json
import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec
import psutil
import pytest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from services.aggregator.wandb_log import metric_keys
from shared import artifacts
from shared.run_record import RunState
from tests.aggregator.test_qa_logs import open_run, problems
from tests.aggregator.wandb_server import Fault, WandbServer, wandb_server

KEY = "k" * 40

# Makes the folder of the run. As a program it uploads, that is, prints so.
WORKS = """
import os, pathlib, sys
if __name__ == "__main__":
    assert sys.argv[1] == "sync" and pathlib.Path(sys.argv[2]).is_dir()
    assert os.environ["WANDB_API_KEY"] == "k" * 40
    print("wandb: [p/1] View run at https://w.example/1\\nwandb: [p/1] Finished syncing")
class Run:
    def __init__(self, given):
        self.folder = pathlib.Path(given["dir"], "wandb", f"offline-run-1-{given['id']}")
        self.folder.mkdir(parents=True)
    def log(self, values): pass
    def log_artifact(self, artifact): pass
    def finish(self): print("a line of the library's own")
class Artifact:
    def __init__(self, name, type): pass
    def add_file(self, path, name): assert pathlib.Path(path).exists()
def Settings(**_): return None
def Table(columns, rows): return None
def init(**given): return Run(given)
"""
UPLOAD_FAILS = WORKS.replace("Finished syncing", "ERROR no route to host")
HANGS = "import time\ntime.sleep(60)\n"
BREAKS = "raise OSError('disk\\nfull')\n"
WRITES_ELSEWHERE = WORKS.replace("-{given['id']}", "-other")
# Its child lives on, as the library's server may, and keeps the output open.
LEAVES_A_CHILD = WORKS.replace(
    "def finish(self):",
    "def finish(self):\n        import subprocess\n"
    "        child = subprocess.Popen(['sleep', '300']).pid\n"
    "        (self.folder / 'child').write_text(str(child))\n       ",
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a source text the library ``wandb`` of this process and its children."""

    def install(source: str) -> None:
        folder = tmp_path / "library"
        folder.mkdir()
        (folder / "wandb.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    return install


def published(redis: Redis, folder: Path, **section: Any) -> dict[str, Any]:
    """What ``run.json`` says of W&B once the run is published, which it always is."""
    wandb = {"enabled": True, **section}
    ledger, _ = open_run(redis, str(folder), problems(), wandb=wandb)
    publish(ledger)
    assert ledger.state() is RunState.INCOMPLETE
    run = json.loads((folder / artifacts.RUN).read_text())
    assert run["complete"] is False
    return dict(run["wandb"])


def test_a_key_in_a_file(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(WORKS)
    file = tmp_path / "key"
    monkeypatch.setenv("WANDB_API_KEY_FILE", str(file))
    assert published(redis, tmp_path / "without")["mode"] == "offline"  # an optional secret
    file.write_text(f"{KEY}\n")
    note = published(redis, tmp_path / "out")
    assert (note["mode"], note["url"]) == ("online", "https://w.example/1")
    assert not list((tmp_path / "out" / "wandb").glob("*run-*"))
    file.write_text("a key")
    note = published(redis, tmp_path / "bad")
    assert note["mode"] == "offline"
    assert "WANDB_API_KEY_FILE: a token has only visible" in note["online_error"]


def test_what_cannot_be_uploaded_is_kept(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(UPLOAD_FAILS)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    note = published(redis, tmp_path / "out")
    assert note["mode"] == "offline"
    assert "ERROR no route to host']; check WANDB_API_KEY" in note["online_error"]
    assert Path(note["path"]).is_dir()


def test_publishing_again_replaces_the_offline_files(
    redis: Redis, tmp_path: Path, stand_in
) -> None:
    stand_in(WORKS)
    ledger, _ = open_run(redis, str(tmp_path / "out"), problems(), wandb={"enabled": True})
    publish(ledger)
    other = tmp_path / "out" / "wandb" / "offline-run-1-somebodyelses"
    other.mkdir()
    publish(ledger)
    assert len(list((tmp_path / "out" / "wandb").glob("offline-run-*"))) == 2
    assert other.is_dir()


@pytest.mark.parametrize(
    ("source", "section", "reason"),
    [
        (HANGS, {"timeout": 0.5}, r"not finished after 0.5 s \(wandb.timeout\)"),
        (BREAKS, {}, "wandb exited with code 1: full"),
        (WRITES_ELSEWHERE, {}, "wandb wrote no files below"),
    ],
)
def test_a_failure_is_a_note(
    redis: Redis, tmp_path: Path, stand_in, source: str, section: dict[str, Any], reason: str
) -> None:
    stand_in(source)
    note = published(redis, tmp_path / "out", **section)
    assert note["mode"] == "none"
    assert re.search(reason, note["offline_error"])
    assert "\n" not in note["offline_error"]


def test_no_temporary_folder(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(WORKS)
    ledger, _ = open_run(redis, str(tmp_path / "out"), problems(), wandb={"enabled": True})
    ledger.set_state(RunState.JUDGED)
    ingester = Ingester(redis)
    ingester.catch_up()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    publish_due(ingester)
    assert ledger.state() is RunState.INCOMPLETE
    run = json.loads((tmp_path / "out" / artifacts.RUN).read_text())
    assert "No such file" in run["wandb"]["offline_error"]


def test_no_child_of_the_library_is_left(redis: Redis, tmp_path: Path, stand_in) -> None:
    stand_in(LEAVES_A_CHILD)
    note = published(redis, tmp_path / "the out")
    assert note["sync"] == f"wandb sync '{note['path']}'"
    child = int((Path(note["path"]) / "child").read_text())
    with suppress(psutil.NoSuchProcess):
        # Where nobody collects orphans, a dead one stays as a zombie.
        psutil.wait_procs([psutil.Process(child)], timeout=10)
        assert psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_folder_elsewhere_has_no_offline_files(redis: Redis, stand_in) -> None:
    stand_in(WORKS)
    ledger, _ = open_run(redis, "memory://wandb-elsewhere", problems(), wandb={"enabled": True})
    publish(ledger)
    run = artifacts.OutputFolder("memory://wandb-elsewhere").read_json(artifacts.RUN)
    assert run is not None
    assert "can only be uploaded; set WANDB_API_KEY" in run["wandb"]["online_error"]


def test_switched_off(redis: Redis, tmp_path: Path, stand_in) -> None:
    stand_in(BREAKS)
    ledger, _ = open_run(redis, str(tmp_path / "out"), problems(), wandb={"enabled": False})
    publish(ledger)
    run = json.loads((tmp_path / "out" / artifacts.RUN).read_text())
    assert run["wandb"] is None
    assert not (tmp_path / "out" / "wandb").exists()


# The library itself.


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Callable[[WandbServer], None]:
    """Gives the aggregator a key, and the address of a server."""

    def connect(server: WandbServer) -> None:
        monkeypatch.setenv("WANDB_MODE", "")  # as Compose passes what is not set
        monkeypatch.setenv("WANDB_SWEEP_ID", "abc")  # as an agent of a sweep sets
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)

    return connect


def test_upload(redis: Redis, tmp_path: Path, online: Callable[[WandbServer], None]) -> None:
    with wandb_server() as server:
        online(server)
        note = published(redis, tmp_path / "out")
        assert (note["mode"], note["wandb"]) == ("online", importlib.metadata.version("wandb"))
        assert note["url"].startswith(server.url)
        assert note.keys() == {"mode", "run_id", "wandb", "url"}
        assert_uploaded(server, note, tmp_path / "out")
        assert server.keys == {"Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()}
        assert not [path for path in server.paths if "otel" in path]
        assert KEY not in (tmp_path / "out" / artifacts.RUN).read_text()


@pytest.mark.nightly
def test_upload_from_a_folder_elsewhere(
    redis: Redis,
    tmp_path: Path,
    online: Callable[[WandbServer], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    with wandb_server() as server:
        online(server)
        ledger, _ = open_run(redis, "memory://wandb", problems(), wandb={"enabled": True})
        publish(ledger)
        # Neither the results nor the library's files.
        assert list((tmp_path / "scratch").iterdir()) == []
        fs = fsspec.filesystem("memory")
        assert not fs.exists("/wandb/wandb")
        fs.get("/wandb", str(tmp_path / "out"), recursive=True)
        note = json.loads((tmp_path / "out" / artifacts.RUN).read_text())["wandb"]
        assert (note["mode"], note.get("online_error")) == ("online", None)
        assert_uploaded(server, note, tmp_path / "out")


@pytest.mark.nightly  # a failed upload of the stand-in is an ordinary test
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("/graphql", HTTPStatus.UNAUTHORIZED, "user is not logged in"), "not logged in"),
        (Fault("/files", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "quota"), "413 .*quota"),
    ],
)
def test_an_upload_that_fails(
    redis: Redis, tmp_path: Path, online: Callable[[WandbServer], None], fault: Fault, reason: str
) -> None:
    with wandb_server(fault) as server:
        online(server)
        # The shorter the limit, the sooner the library gives up; the offline files need seconds.
        note = published(redis, tmp_path / "out", timeout=60)
    assert re.search(reason, note["online_error"])
    assert "check WANDB_API_KEY, WANDB_BASE_URL" in note["online_error"]
    assert "\n" not in note["online_error"]
    assert (note["mode"], note["sync"]) == ("offline", f"wandb sync {note['path']}")
    (kept,) = (tmp_path / "out" / "wandb").glob("*run-*")  # nothing is left of the upload
    assert kept == Path(note["path"])


def assert_uploaded(server: WandbServer, note: dict[str, Any], out: Path) -> None:
    """The server has metrics, config, table and files of a run."""
    first = server.runs[0]
    assert (first["project"], first["name"]) == ("rlvr_coding_model", note["run_id"])
    config = json.loads(first["config"])["actor_rollout_ref"]["value"]
    assert config["rollout"]["response_length"] == 99
    history = {key: value for line in server.history for key, value in line.items()}
    summary = json.loads((out / artifacts.SUMMARY).read_text())
    assert metric_keys(summary).items() <= history.items()
    names = {given["artifactTypeName"]: name for name, given in server.artifacts.items()}
    assert server.committed == set(names.values())
    stored = server.storage
    assert json.loads(stored[f"{names['results']}/{artifacts.RUN}"])["run"] == "run-1"
    assert_table(json.loads(stored[f"{names['run_table']}/qa_logs.table.json"]), out)


def assert_table(table: dict[str, Any], out: Path) -> None:
    lines = (out / "qa_logs" / "d1_4.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    names = ("problem_id", "final_status", "response", "pass_ratio")
    assert [[row[n] for n in names] for row in rows] == [[r[n] for n in names] for r in records]
