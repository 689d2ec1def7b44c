"""W&B logging with the library absent, broken, hanging (stand-ins), and with the real one."""

import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis import Redis

from services.aggregator import wandb_log
from services.aggregator.publish import publish
from services.aggregator.wandb_log import metric_keys
from shared import artifacts
from shared.config import load_config
from shared.errors import ConfigError
from shared.run_record import RunState
from tests.aggregator.test_qa_logs import open_run, problems

# Keeps what it is given in the folder of the run.
RECORDING = """
import json, pathlib
__version__ = "0"
class Run:
    url = "https://wandb.example/run"
    def __init__(self, given):
        self.given, self.logged, self.files = given, {}, {}
        self.folder = pathlib.Path(given["dir"], "wandb", f"offline-run-1-{given['id']}")
        self.dir = str(self.folder / "files")
        pathlib.Path(self.dir).mkdir(parents=True)
    def log(self, values): self.logged |= values
    def log_artifact(self, artifact): self.files = artifact.files
    def finish(self):
        text = json.dumps([self.given, self.logged, self.files])
        (self.folder / "given.json").write_text(text)
        print("a line of the library's own")
class Artifact:
    def __init__(self, name, type): self.files = {}
    def add_file(self, path, name): self.files[name] = pathlib.Path(path).read_text()
def Settings(**_): return None
def Table(columns, rows): return {"columns": columns, "rows": rows}
def init(**given):
    del given["settings"]
    return Run(given)
"""
ONLINE_FAILS = RECORDING.replace(
    "def init(**given):",
    "def init(**given):\n    if given['mode'] == 'online': raise RuntimeError('no route to host')",
)
HANGS = "import time\ntime.sleep(60)\n"
BREAKS = "raise OSError('disk\\nfull')\n"
# Its child lives on, as the library's server may, and keeps the output open.
LEAVES_A_CHILD = RECORDING.replace(
    "import json,",
    "import subprocess; CHILD = subprocess.Popen(['sleep', '300']).pid\nimport json,",
).replace(
    "self.given, self.logged, self.files = given, {}, {}",
    "self.given, self.logged, self.files = given, {'child': CHILD}, {}",
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


def given(path: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    init, logged, files = json.loads((Path(path) / "given.json").read_text())
    return init, logged, files


def test_what_is_logged(redis: Redis, tmp_path: Path, stand_in) -> None:
    stand_in(RECORDING)
    out = tmp_path / "out"
    note = published(redis, out, entity="team")
    assert note["mode"] == "offline"
    assert note["sync"] == f"wandb sync {note['path']}"
    assert Path(note["path"]).parent == out / "wandb"
    init, logged, files = given(note["path"])
    assert (init["project"], init["entity"], init["name"]) == ("rlvr_coding_model", "team", "n")
    assert (init["mode"], init["dir"], init["id"]) == ("offline", str(out), note["run_id"])
    assert init["config"]["actor_rollout_ref"]["rollout"]["response_length"] == 99
    assert logged["eval/d1/accepted_at_1"] == 0.5
    assert logged["eval/d1/accepted_at_1_bounds_high"] == 0.625
    table = logged["qa_logs"]
    assert len(table["rows"]) == 4
    record = dict(zip(table["columns"], table["rows"][0], strict=True))
    assert record["response"] == f"answer to {record['problem_id']}"
    assert json.loads(record["first_failed_case"])["case_index"] == 4
    names = set(artifacts.FILES)
    assert set(files) == names | {"qa_logs/d1_4.jsonl"}
    assert json.loads(files[artifacts.RUN])["qa_logs"]["d1"]


def test_a_key_makes_it_an_upload(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(RECORDING)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    note = published(redis, tmp_path / "out")
    assert (note["mode"], note["url"]) == ("online", "https://wandb.example/run")


def test_what_cannot_be_uploaded_is_kept(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(ONLINE_FAILS)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    note = published(redis, tmp_path / "out")
    assert note["mode"] == "offline"
    assert "no route to host" in note["online_error"]
    assert Path(note["path"]).is_dir()


def test_publishing_again_replaces_the_offline_files(
    redis: Redis, tmp_path: Path, stand_in
) -> None:
    stand_in(RECORDING)
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
        ("", {}, "wandb exited with code 1: AttributeError.*init"),
        (RECORDING, {"mode": "online"}, "WANDB_API_KEY is not set"),
    ],
)
def test_a_failure_is_a_note(
    redis: Redis, tmp_path: Path, stand_in, source: str, section: dict[str, Any], reason: str
) -> None:
    stand_in(source)
    began = time.monotonic()
    note = published(redis, tmp_path / "out", **section)
    assert time.monotonic() - began < 30
    assert note["mode"] == "none"
    error = note.get("offline_error") or note["online_error"]
    assert re.search(reason, error)
    assert "\n" not in error


def test_a_process_that_cannot_be_started(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(RECORDING)
    monkeypatch.setattr(wandb_log.sys, "executable", str(tmp_path / "no-such-python"))
    note = published(redis, tmp_path / "out")
    assert "No such file" in note["offline_error"]


def test_no_child_of_the_library_is_left(redis: Redis, tmp_path: Path, stand_in) -> None:
    stand_in(LEAVES_A_CHILD)
    began = time.monotonic()
    note = published(redis, tmp_path / "out")
    assert time.monotonic() - began < 30
    _, logged, _ = given(note["path"])
    with suppress(psutil.NoSuchProcess):
        # Where nobody collects orphans, a dead one stays as a zombie.
        psutil.wait_procs([psutil.Process(logged["child"])], timeout=10)
        assert psutil.Process(logged["child"]).status() == psutil.STATUS_ZOMBIE


def test_without_the_library(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_log.importlib.util, "find_spec", lambda _name: None)
    note = published(redis, tmp_path / "out", mode="offline")
    assert "pip install wandb" in note["offline_error"]


def test_a_folder_elsewhere_has_no_offline_files(redis: Redis, stand_in) -> None:
    stand_in(RECORDING)
    ledger, _ = open_run(redis, "memory://wandb-elsewhere", problems(), wandb={"enabled": True})
    publish(ledger)
    run = artifacts.OutputFolder("memory://wandb-elsewhere").read_json(artifacts.RUN)
    assert run is not None
    assert "need a local output folder" in run["wandb"]["offline_error"]


def test_a_folder_elsewhere_is_uploaded(
    redis: Redis, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(RECORDING)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    ledger, _ = open_run(redis, "memory://wandb-upload", problems(), wandb={"enabled": True})
    publish(ledger)
    run = artifacts.OutputFolder("memory://wandb-upload").read_json(artifacts.RUN)
    assert run is not None
    assert run["wandb"]["mode"] == "online"


@pytest.mark.parametrize("section", [{"enabled": False}, {"enabled": True, "mode": "disabled"}])
def test_switched_off(redis: Redis, tmp_path: Path, stand_in, section: dict[str, Any]) -> None:
    stand_in(BREAKS)
    ledger, _ = open_run(redis, str(tmp_path / "out"), problems(), wandb=section)
    publish(ledger)
    run = json.loads((tmp_path / "out" / artifacts.RUN).read_text())
    assert run["wandb"] in (None, {"mode": "none"})
    assert not (tmp_path / "out" / "wandb").exists()


def test_metric_keys() -> None:
    summary = {"a": {"rate": 0.5, "rate_ci95": [0.4, 0.6], "cost": None, "n": 3}, "b": {}}
    assert metric_keys(summary) == {
        "eval/a/rate": 0.5,
        "eval/a/rate_ci95_low": 0.4,
        "eval/a/rate_ci95_high": 0.6,
        "eval/a/n": 3,
    }


def test_an_unknown_mode() -> None:
    with pytest.raises(ConfigError, match=r"wandb\.mode"):
        load_config(None, ["wandb.mode=sometimes"])


# The library itself.


def test_the_librarys_own_file(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    note = published(redis, tmp_path / "out")
    (file,) = Path(note["path"]).glob("*.wandb")
    found = dict(read_wandb_file(file))
    config = {u.key: json.loads(u.value_json) for u in found["run"].config.update}
    assert config["actor_rollout_ref"]["rollout"]["response_length"] == 99
    assert found["run"].project == "rlvr_coding_model"
    history = {"/".join(i.nested_key): json.loads(i.value_json) for i in found["history"].item}
    assert history["eval/d1/accepted_at_1"] == 0.5
    assert history["eval/d1/accepted_at_1_ci95_low"] < 0.5
    contents = {entry.path for entry in found["artifact"].manifest.contents}
    assert {artifacts.SUMMARY, artifacts.RUN, "qa_logs/d1_4.jsonl"} <= contents
    (table,) = Path(note["path"]).glob("files/media/table/*.table.json")
    assert len(json.loads(table.read_text())["data"]) == 4


def read_wandb_file(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a run's file, which has LevelDB's log format behind a header of 7 bytes.

    A block of 32 KiB holds fragments: checksum (4 bytes), length (2), kind (1: whole, 2: first,
    3: middle, 4: last), data; less than 7 bytes at a block's end are padding.
    """
    from wandb.proto import wandb_internal_pb2

    data, at, parts = path.read_bytes(), 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            name = record.WhichOneof("record_type")
            yield name, getattr(record, name)
            parts = b""
