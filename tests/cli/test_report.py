"""`plumb report`, and `plumb export`, which is called in this process."""

import os
from pathlib import Path

import pytest
import typer
from redis import Redis
from typer.testing import CliRunner, Result

from services.aggregator.publish import publish
from services.cli.finished import export
from shared import artifacts
from tests.aggregator import reports
from tests.cli.commands import plumb
from tests.exports.conftest import Exported, finished


@pytest.fixture
def run(redis: Redis, tmp_path: Path) -> Path:
    publish(reports.finished(redis, str(tmp_path / "outputs" / "mine")))
    return tmp_path / "outputs" / "mine"


def test_the_page_of_a_run(run: Path, tmp_path: Path) -> None:
    published = (run / artifacts.REPORT).read_bytes()
    (run / artifacts.REPORT).unlink()
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == "outputs/mine/report.html\n"
    assert (run / artifacts.REPORT).read_bytes() == published


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
        (["outputs/mine", "--out", "pipe"], "pipe: not a file"),
        (["outputs/mine", "--out", "outputs/mine/run.json/x.html"], "cannot write outputs/mine"),
    ],
)
def test_what_cannot_be_done(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = plumb("report", *arguments, folder=tmp_path)
    assert done.code == 2
    assert said in done.line


__all__ = ["finished"]  # a fixture

app = typer.Typer()
app.command()(export)


def run_export(run: Path, *options: str) -> Result:
    return CliRunner().invoke(app, [str(run), *options])


@pytest.mark.parametrize(("kind", "files"), [("inspect", 3), ("evalplus", 2), ("hf-parquet", 1)])
def test_the_files_are_named(finished: Exported, tmp_path: Path, kind: str, files: int) -> None:
    result = run_export(finished.run, "--format", kind, "--output", str(tmp_path / "out"))
    assert result.exit_code == 0
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert len(paths) == files
    assert all(path.is_file() for path in paths)
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == files


def test_exporting_again_writes_the_same(finished: Exported, tmp_path: Path) -> None:
    for kind in ("inspect", "evalplus", "hf-parquet"):
        outputs = [tmp_path / kind / name for name in ("one", "two")]
        for output in outputs:
            run_export(finished.run, "--format", kind, "--output", str(output))
        one, two = ({p.name: p.read_bytes() for p in o.rglob("*.*")} for o in outputs)
        assert one == two != {}


def test_notes_go_to_stderr(finished: Exported, tmp_path: Path) -> None:
    with (finished.run / "generations.jsonl").open("a") as file:
        file.write('{"dataset": "human')
    result = run_export(finished.run, "--format", "hf-parquet", "--output", str(tmp_path / "out"))
    assert result.stderr.startswith("note: ")
    assert result.stdout.splitlines() == [str(tmp_path / "out" / "samples.parquet")]
