"""`plumb export`, called in this process."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from services.cli.finished import export
from shared.errors import OutputError
from tests.exports.conftest import Exported, finished

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


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    result = run_export(tmp_path, "--format", "hf-parquet", "--output", str(tmp_path / "out"))
    assert isinstance(result.exception, OutputError)
    assert "no run in this folder" in str(result.exception)
    assert not (tmp_path / "out").exists()
