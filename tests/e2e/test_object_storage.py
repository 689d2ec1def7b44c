"""Commands and services on object storage, against a real server of S3."""

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from tests.cli.commands import Outcome
from tests.cli.fork_server import run_forked
from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
DATA, RUNS = "s3://bucket/demo", "s3://bucket/runs"
Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def storage(server: str) -> s3fs.S3FileSystem:
    """The server as a filesystem; its bucket has the demo's data."""
    storage = s3fs.S3FileSystem(
        key="test", secret="test", endpoint_url=server, use_listings_cache=False
    )
    storage.mkdir("bucket")
    storage.put(f"{plumb.DEMO}/", "bucket/demo/", recursive=True)
    return storage


@pytest.fixture
def command(server: str, tmp_path: Path) -> Command:
    """Run ``plumb`` with credentials in its environment, which is the only place that has them."""

    def run(*arguments: str, **changed: str) -> Outcome:
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        environment = {
            **kept,
            "HOME": str(tmp_path),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ENDPOINT_URL": server,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            # Nothing listens there: what is on loopback is reached without a proxy.
            "http_proxy": "http://127.0.0.1:9",
        }
        outcome = run_forked(list(arguments), plumb.REPOSITORY, environment | changed, seconds=240)
        return Outcome(*outcome)

    return run


def demo(output: str) -> list[str]:
    """A run of four problems, all of whose files are in object storage."""
    return [
        *("run", "--config", "configs/demo.yaml", "--embedded", "--output", f"{RUNS}/{output}"),
        *("--data", f"{DATA}/data", f"data.lock={DATA}/data_manifests/manifest.lock.json"),
        *(f"generation.replay.completions={DATA}/completions.jsonl", "--limit", "1"),
        "judge.canaries=false",
    ]


def test_a_run_and_the_commands_on_it(storage: s3fs.S3FileSystem, command: Command) -> None:
    done = command(*demo("one"))
    assert done.code == 0, done.stderr
    record = json.loads(storage.cat("bucket/runs/one/run.json"))
    assert record["samples_judged"] == 4
    names = {path.removeprefix("bucket/runs/one/") for path in storage.find("bucket/runs/one")}
    assert {"report.html", "verdicts.jsonl", "generations.jsonl"} <= names
    assert any(name.startswith("qa_logs/") for name in names)
    assert not [name for name in names if name.endswith(".tmp")]
    # Nothing is beside the user's folder.
    assert storage.ls("bucket/runs", detail=False) == ["bucket/runs/one"]

    run = f"{RUNS}/one"
    for arguments, said in [
        (("show", run), "4 of 4 samples judged"),
        (("runs", RUNS), "4/4"),
        (("compare", run, run), "accepted@1"),
        (("report", run, "--out", f"{RUNS}/page.html"), f"{RUNS}/page.html"),
        (("export", run, "--format", "hf-parquet", "--output", f"{RUNS}/table"), f"{RUNS}/table/"),
    ]:
        done = command(*arguments)
        assert done.code == 0, (arguments, done.stderr)
        assert said in done.stdout, arguments


def test_data_are_prepared_and_imported(
    storage: s3fs.S3FileSystem, command: Command, tmp_path: Path
) -> None:
    source = f"{DATA}/problems/humaneval.jsonl"
    config = tmp_path / "data.yaml"
    sets = {"mine": {"source": {"kind": "local", "path": source}, "layout": "jsonl"}}
    folders = {"output": "s3://bucket/data/", "manifests": "s3://bucket/manifests"}
    config.write_text(json.dumps({"datasets": sets, "raw": str(tmp_path / "raw"), **folders}))
    for arguments, said in [
        (("data", "prepare", "--config", str(config)), "s3://bucket/manifests/manifest.lock.json"),
        (("data", "check", "--config", str(config)), "15 problems of 1 sets: 0 differences"),
        (
            ("data", "import", "jsonl", "--source", source, "--output", "s3://bucket/in"),
            "s3://bucket/in/humaneval.parquet: 15 problems",
        ),
    ]:
        done = command(*arguments)
        assert done.code == 0, (arguments, done.stderr)
        assert said in done.stdout, arguments
    assert storage.exists("bucket/data/mine.parquet")


def test_wrong_credentials_are_one_line(
    server: str, storage: s3fs.S3FileSystem, command: Command
) -> None:
    storage.touch("bucket/any/run.json")
    authenticated(server, True)
    try:
        for changed, reasons in [
            ({}, ("Access Key", "Forbidden")),
            ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, ("credentials",)),
            ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, ("127.0.0.1:9",)),
        ]:
            for arguments in [demo("two"), ["show", f"{RUNS}/two"], ["runs", RUNS]]:
                done = command(*arguments, **changed)
                assert done.code == 2, (arguments, changed, done.stderr)
                assert any(reason in done.line for reason in reasons), (arguments, done.line)
                assert "s3://bucket/" in done.line, (arguments, changed)
    finally:
        authenticated(server, False)


def authenticated(server: str, required: bool) -> None:
    """Let the server check credentials, of which it knows none."""
    text = {"Content-Type": "text/plain"}
    count = b"0" if required else b"inf"
    reset = urllib.request.Request(f"{server}/moto-api/reset-auth", count, text)
    urllib.request.urlopen(reset).close()
