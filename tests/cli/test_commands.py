"""Commands that are imported when they run: the list in the help, and what the help imports."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.commands import COMMANDS, DATA_COMMANDS, LazyCommand

ROOT = Path(__file__).resolve().parents[2]
# Each of them takes longer to import than the help takes as a whole.
_HEAVY = ("aiohttp", "numpy", "pyarrow", "pydantic", "redis", "rq", "structlog", "fsspec")


def plumb(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


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
    done = plumb("jude")
    assert done.returncode == 2
    assert "No such command 'jude'. Did you mean 'judge', 'rejudge'?" in done.stderr


def test_the_version() -> None:
    done = plumb("--version")
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
    assert set(completed("bash", typed).split()) == wanted


def completed(shell: str, typed: str) -> str:
    """What a shell is given for a command line; its last word is being typed."""
    words = typed.split()
    line = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    line |= {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    # Typer names the variable after the program.
    program = "import sys; sys.argv = ['plumb']; from services.cli.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **line, "_PLUMB_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
    )
    return done.stdout
