"""Signals that arrive where an exception would be lost, or would be another one."""

import signal
import subprocess
import sys

import pytest

from tests.e2e.plumb import take_interrupts

_PROGRAM = """
import os, signal, sys, time, weakref
from services.cli.imports import interruptible_imports
from services.cli.interrupts import sigterm_as_interrupt

def stop(*_):
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    sum(range(10))

class Watched: pass

try:
    with sigterm_as_interrupt():
{body}
        time.sleep(60)
except KeyboardInterrupt:
    print("shut down", flush=True)
    sys.exit(130)
"""


def _ends(body: str, sign: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    program = [sys.executable, "-c", _PROGRAM.replace("{body}", indented), sign.name]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=50, preexec_fn=take_interrupts
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "watched = Watched(); watcher = weakref.ref(watched, stop); del watched",
        "Watched.__del__ = stop; Watched()",
        "exec('stop()')",
        "stop()",
    ],
    ids=["callback", "finalizer", "exec of a string", "function"],
)
def test_sigterm_is_never_lost_and_the_exit_code_is_the_command_s(body: str) -> None:
    assert _ends(body) == (130, "shut down\n", "")


def test_other_errors_of_a_finalizer_are_told() -> None:
    code, said, error = _ends("Watched.__del__ = lambda self: 1 / 0; Watched(); stop()")
    assert (code, said) == (130, "shut down\n")
    assert "ZeroDivisionError" in error


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_are_imported_ends_with_one_line(sign: signal.Signals) -> None:
    body = """with interruptible_imports():
    try:
        stop()
    except BaseException:
        raise ImportError from None"""
    assert _ends(body, sign) == (130, "", "plumb: interrupted; repeat the command\n")


def test_a_signal_after_the_imports_shuts_down() -> None:
    assert _ends("with interruptible_imports(): import json\nstop()") == (130, "shut down\n", "")


def test_an_ignored_signal_stays_ignored() -> None:
    body = """signal.signal(signal.SIGINT, signal.SIG_IGN)
with interruptible_imports(): stop()
sys.exit(0)"""
    assert _ends(body, signal.SIGINT) == (0, "", "")


_START = """
import os, signal, sys

class Stop:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv[1]
sys.meta_path.insert(0, Stop())
from services.cli.__main__ import main
sys.argv = ["plumb", "--version"]
main()
"""


@pytest.mark.parametrize("module", ["dataclasses", "shared.errors", "services.cli.commands"])
def test_an_interrupt_at_the_start_ends_with_one_line(module: str) -> None:
    program = [sys.executable, "-c", _START, module]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=50, preexec_fn=take_interrupts
    )
    line = "plumb: interrupted; repeat the command\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", line)
