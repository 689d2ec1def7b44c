"""Commands that are imported when they run: the list in the help, and what the help imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.commands import COMMANDS, DATA_COMMANDS, LazyCommand, app

ROOT = Path(__file__).resolve().parents[2]
# Each of them takes longer to import than the help takes as a whole.
_HEAVY = ("aiohttp", "numpy", "pyarrow", "pydantic", "redis", "rq", "structlog", "fsspec")


@pytest.mark.parametrize("command", [*COMMANDS.values(), *DATA_COMMANDS.values()])
def test_the_listed_help_is_the_first_paragraph_of_the_command(command: LazyCommand) -> None:
    first = (command.load().__doc__ or "").partition("\n\n")[0]
    assert " ".join(first.split()) == command.help


def test_the_help_imports_no_command() -> None:
    program = (
        "import sys; from services.cli.__main__ import main; sys.argv = ['plumb', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('imported:', *sorted({set(_HEAVY)!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Judge recorded completions" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported:"


def test_a_misspelt_command_gets_a_suggestion() -> None:
    done = CliRunner().invoke(app, ["jude"])
    assert done.exit_code == 2
    assert "No such command 'jude'. Did you mean 'judge', 'rejudge'?" in done.stderr


def test_the_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert re.fullmatch(r"plumb \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+(, commit \S+)?\)\n", done.stdout)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("plumb ru", {"run", "runs"}),
        ("plumb data ch", {"check"}),
        ("plumb export run --format h", {"hf-parquet"}),
        ("plumb run judge.max_a", {"judge.max_attempts="}),
        ("plumb judge --method s", {"submit"}),
    ],
)
def test_completion(typed: str, wanted: set[str]) -> None:
    """Bash gets the completions of the last word, which is being typed."""
    line = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    environment = {**line, "_PLUMB_COMPLETE": "complete_bash"}
    done = CliRunner().invoke(app, [], env=environment, prog_name="plumb")
    assert set(done.stdout.split()) == wanted
