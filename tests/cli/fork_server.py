"""Run ``plumb``, or an aggregator, as a fork of one process that has imported what they need.

A command starts in milliseconds instead of a second of imports. It is still a process with its own
folder, environment, output and exit code.
"""

import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from services.cli.commands import COMMANDS, DATA_COMMANDS

ROOT = Path(__file__).resolve().parents[2]
# Beginnings of variables that Python reads at its start, or a module at its import. A command with
# such a variable is no fork: it must be executed.
READ_AT_THE_START = ("HF_", "HOME", "LANG", "LC_", "PYTHON", "SANDBOX_FUSION_")
# Modules that commands import while they work.
_LATER = (
    *("services.runner.client", "services.judge.worker", "services.aggregator.__main__"),
    *("services.aggregator.publish", "services.sandbox.programs", "omegaconf", "uvloop"),
)
_STARTING = threading.Lock()  # the environment is another one meanwhile
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        *(f"services.cli.{command.module}" for command in (COMMANDS | DATA_COMMANDS).values()),
        *_LATER,
        __name__,
    ]
)


def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with tempfile.TemporaryDirectory() as outputs:
        files = (Path(outputs, "stdout"), Path(outputs, "stderr"))
        process = start_forked(arguments, folder, environment, files)
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"plumb {' '.join(arguments)} takes more than {seconds} s")
        stdout, stderr = (file.read_bytes().decode().replace("\r\n", "\n") for file in files)
        return process.exitcode, stdout, stderr


def start_forked(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    outputs: tuple[Path, Path],
    package: str = "services.cli",
) -> BaseProcess:
    """Start the program of a package; ``outputs``: files of standard output and standard error."""
    with _STARTING:
        _start_server()
    command = (package, list(arguments), str(folder), dict(environment), outputs)
    process = _context.Process(target=_become_command, args=command)
    process.start()
    return process


@cache
def _start_server() -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # One thread: a fork copies no others.
    settings = {**kept, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    # Its socket is not in the folder of the tests, which is deleted before the server ends.
    with (
        mock.patch.dict(os.environ, settings, clear=True),
        mock.patch.object(tempfile, "tempdir", None),
    ):
        forkserver.ensure_running()


def _become_command(
    package: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    outputs: tuple[Path, Path],
) -> None:
    for number, path in enumerate(outputs, 1):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.argv = [str(ROOT / package.replace(".", "/") / "__main__.py"), *arguments]
    sys.path[0] = folder
    sys.modules["__main__"].__package__ = package
    sys.exit(import_module(f"{package}.__main__").main())
