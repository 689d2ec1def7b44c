"""`plumb report`, and the selection of one of several runs with the same name."""

import json
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator.app import make_app
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from shared import artifacts
from tests.aggregator.reports import data_of, finished
from tests.aggregator.runs import ask
from tests.cli.commands import plumb


@pytest.fixture
def run(redis: Redis, tmp_path: Path) -> Path:
    publish(finished(redis, str(tmp_path / "outputs" / "mine")))
    return tmp_path / "outputs" / "mine"


def test_the_page_of_a_run(run: Path, tmp_path: Path) -> None:
    published = (run / artifacts.REPORT).read_bytes()
    (run / artifacts.REPORT).unlink()
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == "outputs/mine/report.html\n"
    assert (run / artifacts.REPORT).read_bytes() == published


@pytest.mark.parametrize("out", ["page.html", "new/folder/page.html"])
def test_another_file(run: Path, tmp_path: Path, out: str) -> None:
    done = plumb("report", "outputs/mine", "--out", out, folder=tmp_path)
    assert done.code == 0
    assert (tmp_path / done.stdout.strip()).samefile(tmp_path / out)
    assert (tmp_path / out).read_bytes() == (run / artifacts.REPORT).read_bytes()


def test_what_is_not_in_the_page_is_said(run: Path, tmp_path: Path) -> None:
    path = run / artifacts.VERDICTS
    path.write_bytes(path.read_bytes()[:-9])
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert done.code == 0
    assert "verdicts.jsonl:4" in done.line
    assert done.line.startswith("note: Left out: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "none: no run in this folder"),
        (["outputs/mine", "--out", "outputs"], "outputs: a folder; name the file to write"),
        (["outputs/mine", "--out", "there/"], "there/: a folder; name the file to write"),
        (["outputs/mine", "--out", "outputs/mine/run.json/x.html"], "cannot write outputs/mine"),
    ],
)
def test_what_cannot_be_done(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = plumb("report", *arguments, folder=tmp_path)
    assert done.code == 2
    assert said in done.line


def test_a_torn_run_json(run: Path, tmp_path: Path) -> None:
    (run / artifacts.RUN).write_text('{"name": "mi')
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert done.code == 2
    assert "run.json cannot be read" in done.line
    assert (run / artifacts.REPORT).exists()


async def test_two_runs_of_one_name(redis: Redis, tmp_path: Path) -> None:
    folders = [tmp_path / "outputs" / name for name in ("one", "two")]
    for folder in folders:
        publish(finished(redis, str(folder), run=f"mine-{folder.name}"))
    ingester = Ingester(redis)
    ingester.catch_up()
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        told = await ask(client, "/api/runs")
        details = [await ask(client, f"/api/runs/{run}") for run in told]
    assert {run: found["name"] for run, found in told.items()} == {
        "mine-one": "mine",
        "mine-two": "mine",
    }
    assert [found["facts"]["output"] for found in details] == [str(folder) for folder in folders]
    pages = [data_of(folder / artifacts.REPORT)["run"]["summary"]["run"] for folder in folders]
    assert pages == ["mine-one", "mine-two"]
    listed = plumb("runs", folder=tmp_path)
    for folder in folders:
        assert f"outputs/{folder.name}" in listed.stdout
        shown = plumb("show", str(folder), folder=tmp_path)
        assert f"artifacts in {folder}" in shown.stdout
        assert f"its page: {folder}/{artifacts.REPORT}" in shown.stdout
        assert json.loads((folder / artifacts.RUN).read_text())["output"] == str(folder)
