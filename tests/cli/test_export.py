"""`plumb export`, called in this process."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from services.cli.finished import export
from shared.errors import DataError, OutputError
from tests.exports.conftest import Exported, finished

__all__ = ["finished"]  # a fixture

app = typer.Typer()
app.command()(export)


def run_export(run: Path, *options: str) -> Result:
    return CliRunner().invoke(app, [str(run), *options])


@pytest.mark.parametrize(
    ("kind", "files"),
    [("inspect", 3), ("evalplus", 2), ("hf-parquet", 1), ("csv", 1)],
)
def test_the_files_are_named(finished: Exported, tmp_path: Path, kind: str, files: int) -> None:
    result = run_export(finished.run, "--format", kind, "--output", str(tmp_path / "out"))
    assert result.exit_code == 0
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert len(paths) == files
    assert all(path.is_file() for path in paths)
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == files


def test_exporting_again_writes_the_same(finished: Exported, tmp_path: Path) -> None:
    for kind in ("inspect", "evalplus", "hf-parquet", "csv"):
        outputs = [tmp_path / kind / name for name in ("one", "two")]
        for output in outputs:
            run_export(finished.run, "--format", kind, "--output", str(output))
        one, two = ({p.name: p.read_bytes() for p in o.rglob("*.*")} for o in outputs)
        assert one == two != {}


def test_the_table_of_cases_needs_no_data(finished: Exported, tmp_path: Path) -> None:
    finished.data.unlink()
    finished.record()
    out = tmp_path / "out"
    options = ("--format", "hf-parquet", "--table", "cases", "--output", str(out))
    result = run_export(finished.run, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [str(out / "cases.parquet")]


def test_notes_go_to_stderr(finished: Exported, tmp_path: Path) -> None:
    finished.data.unlink()
    result = run_export(finished.run, "--format", "csv", "--output", str(tmp_path / "out"))
    assert result.stderr.startswith("note: no prompts: ")
    assert result.stdout.splitlines() == [str(tmp_path / "out" / "samples.csv")]


def test_no_empty_question_is_written(finished: Exported, tmp_path: Path) -> None:
    finished.data.unlink()
    out = tmp_path / "out"
    result = run_export(finished.run, "--format", "inspect", "--output", str(out))
    assert isinstance(result.exception, DataError)
    assert "name the data with --data" in str(result.exception)
    assert not out.exists()


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    result = run_export(tmp_path, "--format", "csv", "--output", str(tmp_path / "out"))
    assert isinstance(result.exception, OutputError)
    assert "no run in this folder" in str(result.exception)
    assert not (tmp_path / "out").exists()
