"""Signals that end a command."""

import subprocess
import sys

import pytest

from tests.e2e.plumb import take_interrupts

_PROGRAM = """
import os, signal, sys, time
from services.cli.interrupts import sigterm_as_interrupt

def stop(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    sum(range(10))

try:
    with sigterm_as_interrupt():
        {body}
        time.sleep(60)
except KeyboardInterrupt:
    print("shut down", flush=True)
    sys.exit(130)
"""


def _ends(body: str) -> tuple[int, str, str]:
    program = [sys.executable, "-c", _PROGRAM.replace("{body}", body)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=50, preexec_fn=take_interrupts
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("sign", ["SIGINT", "SIGTERM"])
def test_an_interrupt_in_a_callback_is_not_lost(sign: str) -> None:
    interrupt = f"os.kill(os.getpid(), signal.{sign}), sum(range(10))"
    body = f"import weakref; watched = weakref.ref(set(), lambda _: ({interrupt}))"
    assert _ends(body) == (130, "shut down\n", "")


def test_a_second_sigterm_at_once_does_not_interrupt_the_shutdown() -> None:
    closing = "stop(); print('closed', flush=True)"
    body = f"try: stop()\n        finally: {closing}"
    assert _ends(body) == (130, "closed\nshut down\n", "")


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
