"""W&B logging with stand-ins of the library (broken, hanging), and with the real one."""

import base64
import importlib.metadata
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec
import psutil
import pytest
from redis import Redis

from services.aggregator import wandb_log
from services.aggregator.publish import publish
from services.aggregator.wandb_process import library_failure, metric_keys
from shared import artifacts
from shared.run_record import RunState
from tests.aggregator.test_qa_logs import open_run, problems
from tests.aggregator.wandb_server import Fault, WandbServer, wandb_server

KEY = "k" * 40

# Keeps what it is given in the folder of the run.
RECORDING = """
import json, pathlib, sys, types
errors = sys.modules["wandb.errors"] = types.ModuleType("wandb.errors")
errors.Error = type("Error", (Exception,), {})
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
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    note = published(redis, tmp_path / "out")
    assert (note["mode"], note["url"]) == ("online", "https://wandb.example/run")


def test_a_key_in_a_file(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        RECORDING.replace('    del given["settings"]', "    given['settings'] = KEY").replace(
            "import json,", "import os; KEY = os.environ.get('WANDB_API_KEY')\nimport json,"
        )
    )
    file = tmp_path / "key"
    monkeypatch.setenv("WANDB_API_KEY_FILE", str(file))
    assert published(redis, tmp_path / "without")["mode"] == "offline"  # an optional secret
    file.write_text(f"{KEY}\n")
    assert published(redis, tmp_path / "out")["mode"] == "online"
    (folder,) = (tmp_path / "out" / "wandb").glob("*run-*")
    assert given(str(folder))[0]["settings"] == KEY
    file.write_text("a key")
    note = published(redis, tmp_path / "bad")
    assert note["mode"] == "none"
    assert "WANDB_API_KEY_FILE: a token has only visible" in note["online_error"]


def test_what_cannot_be_uploaded_is_kept(
    redis: Redis, tmp_path: Path, stand_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(ONLINE_FAILS)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
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
        ("class errors: pass", {}, "wandb exited with code 1: ModuleNotFoundError.*wandb"),
        (RECORDING, {"mode": "online"}, "WANDB_API_KEY is not set"),
    ],
)
def test_a_failure_is_a_note(
    redis: Redis, tmp_path: Path, stand_in, source: str, section: dict[str, Any], reason: str
) -> None:
    stand_in(source)
    note = published(redis, tmp_path / "out", **section)
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
    note = published(redis, tmp_path / "out")
    _, logged, _ = given(note["path"])
    with suppress(psutil.NoSuchProcess):
        # Where nobody collects orphans, a dead one stays as a zombie.
        psutil.wait_procs([psutil.Process(logged["child"])], timeout=10)
        assert psutil.Process(logged["child"]).status() == psutil.STATUS_ZOMBIE


def test_a_folder_elsewhere_has_no_offline_files(redis: Redis, stand_in) -> None:
    stand_in(RECORDING)
    ledger, _ = open_run(redis, "memory://wandb-elsewhere", problems(), wandb={"enabled": True})
    publish(ledger)
    run = artifacts.OutputFolder("memory://wandb-elsewhere").read_json(artifacts.RUN)
    assert run is not None
    assert "need a local output folder" in run["wandb"]["offline_error"]


@pytest.mark.parametrize("section", [{"enabled": False}, {"enabled": True, "mode": "disabled"}])
def test_switched_off(redis: Redis, tmp_path: Path, stand_in, section: dict[str, Any]) -> None:
    stand_in(BREAKS)
    ledger, _ = open_run(redis, str(tmp_path / "out"), problems(), wandb=section)
    publish(ledger)
    run = json.loads((tmp_path / "out" / artifacts.RUN).read_text())
    assert run["wandb"] in (None, {"mode": "none"})
    assert not (tmp_path / "out" / "wandb").exists()


# The library itself.


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):  # as Compose passes what is not set
        monkeypatch.setenv(name, "")


@pytest.fixture
def online(no_key: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[WandbServer], None]:
    """Gives the aggregator a key, and the address of a server."""

    def connect(server: WandbServer) -> None:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)

    return connect


@pytest.fixture
def offline_run(redis: Redis, tmp_path: Path, no_key: None) -> dict[str, Any]:
    return published(redis, tmp_path / "out")


def test_the_librarys_own_file(offline_run: dict[str, Any], tmp_path: Path) -> None:
    place = Path(offline_run["path"])
    (file,) = place.glob("*.wandb")
    records = list(read_wandb_file(file))
    found = dict(records)
    config = {u.key: json.loads(u.value_json) for u in found["run"].config.update}
    assert config["actor_rollout_ref"]["rollout"]["response_length"] == 99
    assert (found["run"].project, found["run"].display_name) == ("rlvr_coding_model", "n")
    history = {"/".join(i.nested_key): json.loads(i.value_json) for i in found["history"].item}
    summary = json.loads((tmp_path / "out" / artifacts.SUMMARY).read_text())
    assert metric_keys(summary).items() <= history.items()
    assert history["eval/d1/accepted_at_1"] == 0.5
    assert history["eval/d1/accepted_at_1_ci95_low"] < 0.5
    results = next(a for kind, a in records if kind == "artifact" and a.type == "results")
    contents = {entry.path: entry.local_path for entry in results.manifest.contents}
    assert set(contents) == {*artifacts.FILES, "qa_logs/d1_4.jsonl"}
    for name, copy in contents.items():  # what `wandb sync` uploads; run.json changed since
        if name != artifacts.RUN:
            assert Path(copy).read_bytes() == (tmp_path / "out" / name).read_bytes()
    (table,) = place.glob("files/media/table/*.table.json")
    assert_table(json.loads(table.read_text()), tmp_path / "out")
    assert not (place / "files" / "wandb-metadata.json").exists()  # host, user and command line


@pytest.mark.nightly
def test_offline_files_can_be_uploaded_later(
    offline_run: dict[str, Any], tmp_path: Path, online: Callable[[WandbServer], None]
) -> None:
    with wandb_server() as server:
        online(server)
        env = {**os.environ, "WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)}
        command = [sys.executable, "-m", *offline_run["sync"].split()]
        done = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert_uploaded(server, offline_run, tmp_path / "out")


def test_upload(redis: Redis, tmp_path: Path, online: Callable[[WandbServer], None]) -> None:
    with wandb_server() as server:
        online(server)
        note = published(redis, tmp_path / "out")
        assert note == {
            "mode": "online",
            "run_id": note["run_id"],
            "wandb": wandb_version(),
            "url": f"{server.url}/team/rlvr_coding_model/runs/{note['run_id']}",
        }
        assert_uploaded(server, note, tmp_path / "out")
        assert server.keys == {"Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()}
        assert not [path for path in server.paths if "otel" in path]
        assert KEY not in (tmp_path / "out" / artifacts.RUN).read_text()


@pytest.fixture
def elsewhere(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Publishes a run whose folder is no local one, and copies its files to ``out``."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def publish_there(name: str, **section: Any) -> dict[str, Any]:
        wandb = {"enabled": True, **section}
        ledger, _ = open_run(redis, f"memory://{name}", problems(), wandb=wandb)
        publish(ledger)
        assert ledger.state() is RunState.INCOMPLETE
        assert list(scratch.iterdir()) == []  # neither the results nor the library's files
        fs = fsspec.filesystem("memory")
        assert not fs.exists(f"/{name}/wandb")
        fs.get(f"/{name}", str(tmp_path / "out"), recursive=True)
        run = json.loads((tmp_path / "out" / artifacts.RUN).read_text())
        return dict(run["wandb"])

    return publish_there


@pytest.mark.nightly
def test_upload_from_a_folder_elsewhere(
    elsewhere: Callable[..., dict[str, Any]],
    tmp_path: Path,
    online: Callable[[WandbServer], None],
) -> None:
    with wandb_server() as server:
        online(server)
        note = elsewhere("wandb-real-upload")
        assert (note["mode"], note.get("online_error")) == ("online", None)
        assert_uploaded(server, note, tmp_path / "out")


@pytest.mark.nightly
def test_an_upload_that_fails_from_a_folder_elsewhere(
    elsewhere: Callable[..., dict[str, Any]], online: Callable[[WandbServer], None]
) -> None:
    """There is no place for offline files; both reasons are recorded, and the run is published."""
    with wandb_server(
        Fault("/graphql", HTTPStatus.UNAUTHORIZED, "user is not logged in")
    ) as server:
        online(server)
        note = elsewhere("wandb-real-failure", timeout=40)
    assert note["mode"] == "none"
    assert "not logged in" in note["online_error"]
    assert "need a local output folder, not memory://wandb-real-failure" in note["offline_error"]
    assert "path" not in note


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(
            Fault("/graphql", HTTPStatus.UNAUTHORIZED, "user is not logged in"),
            "not logged in",
            id="wrong key",
        ),
        pytest.param(
            Fault("/graphql", HTTPStatus.INTERNAL_SERVER_ERROR, "broken"),
            "HTTP 500: broken",
            id="broken",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            Fault("/graphql"),
            r"Client\.Timeout|not finished after 12 s \(wandb\.timeout\)",
            id="hangs",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            Fault("/files", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "quota"),
            "413 .*quota",
            id="full of metrics",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            Fault("/storage", HTTPStatus.INSUFFICIENT_STORAGE),
            "507 Insufficient Storage",
            id="full of files",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_an_upload_that_fails(
    redis: Redis,
    tmp_path: Path,
    online: Callable[[WandbServer], None],
    fault: Fault,
    reason: str,
) -> None:
    with wandb_server(fault) as server:
        online(server)
        # The shorter the limit, the sooner the library gives up; the offline files need seconds.
        note = published(redis, tmp_path / "out", timeout=12 if fault.status is None else 40)
    assert re.search(reason, note["online_error"])
    assert "check WANDB_API_KEY, WANDB_BASE_URL" in note["online_error"]
    assert "\n" not in note["online_error"]
    assert (note["mode"], note["sync"]) == ("offline", f"wandb sync {note['path']}")
    (kept,) = (tmp_path / "out" / "wandb").glob("*run-*")  # nothing is left of the upload
    assert kept == Path(note["path"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, None),
        ("", None),
        ('no JSON\n[]\n{"level": 3}\n{"level": "INFO", "msg": "sent"}\n\udcff', None),
        ('{"level": "ERROR", "msg": "api: HTTP error", "status": 500}', "api: HTTP error"),
        (
            '{"level": "ERROR", "msg": "api: HTTP error"}\n'
            '{"level": "ERROR+4", "msg": "lost\\nall", "error": "full"}\n{"level": "ERROR',
            "lost all: full",
        ),
    ],
)
def test_the_first_error_in_the_librarys_log(
    tmp_path: Path, text: str | None, wanted: str | None
) -> None:
    (tmp_path / "logs").mkdir()
    if text is not None:
        log = tmp_path / "logs" / "debug-internal.log"
        log.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert library_failure(tmp_path) == wanted


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


def wandb_version() -> str:
    return importlib.metadata.version("wandb")


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
