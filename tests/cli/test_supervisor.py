"""Supervisor of child processes: restarts, readiness, graceful shutdown; the lock of a folder."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.embedded.environment import start_sandbox, waiting_sandbox
from services.cli.embedded.services import ChildProcess, wait_until
from services.cli.embedded.stack import EmbeddedStack, file_lock, logging_to
from shared.errors import ServiceError
from shared.service.logs import get_logger

SLEEP = "import time; time.sleep(60)"
IGNORES_SIGTERM = (
    "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[EmbeddedStack]:
    supervisor = EmbeddedStack(tmp_path)
    yield supervisor
    for child in supervisor.children:
        child.stop(0)


def child(folder: Path, code: str, *arguments: str, max_restarts: int = 10) -> ChildProcess:
    command = [sys.executable, "-c", code, *arguments]
    return ChildProcess(
        "worker", command, folder / "log", dict(os.environ), max_restarts=max_restarts
    )


@pytest.mark.parametrize(("code", "restarts"), [(1, 2), (2, 0)])
def test_a_child_that_crashes_too_often_or_refuses_its_settings_is_an_error(
    supervisor: EmbeddedStack, tmp_path: Path, code: int, restarts: int
) -> None:
    program = f"import sys; print('the reason'); sys.exit({code})"
    supervisor.start(child(tmp_path, program, max_restarts=2))
    with pytest.raises(ServiceError) as caught:
        while True:
            for crashed in supervisor.children:
                crashed.process.wait(20)
            supervisor.restart_dead()
    tries = f" after {restarts} restarts" if restarts else ""
    message = f"worker ended with exit code {code}{tries} ({tmp_path}"
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("its log ends: the reason")


def test_a_child_that_dies_before_it_is_ready_is_an_error(
    supervisor: EmbeddedStack, tmp_path: Path
) -> None:
    worker = supervisor.start(child(tmp_path, "print('no port')"))
    with pytest.raises(ServiceError, match=r"ended with exit code 0 .*: no port"):
        wait_until(lambda: False, worker, seconds=20)


def test_shutdown_kills_a_child_that_ignores_sigterm(
    supervisor: EmbeddedStack, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    stubborn = child(tmp_path, IGNORES_SIGTERM, str(ready))
    stubborn.grace = 0.2
    first = supervisor.start(child(tmp_path, SLEEP))
    supervisor.start(stubborn)
    wait_until(ready.exists, stubborn)
    began = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began < 10
    assert not first.running
    assert (stubborn.running, stubborn.exit_code) == (False, -signal.SIGKILL)


def test_a_locked_folder_is_refused_until_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "out" / ".plumbline" / "lock"
    path.parent.mkdir(parents=True)
    with file_lock(path):
        again = file_lock(path, timeout=0.2)
        with pytest.raises(ServiceError, match="another plumb command") as caught, again:
            pytest.fail("locked twice")
        assert str(tmp_path / "out") in str(caught.value)
    with file_lock(path, timeout=0):
        pass


def test_a_log_on_a_full_disk_hides_no_error_of_the_command(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ServiceError, match="Redis"), logging_to(Path("/dev/full")):
        get_logger("test").error("this line finds no space")
        raise ServiceError("Redis cannot write either")
    assert capfd.readouterr() == ("", "")


def test_no_sandbox_starts_beside_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URLS", "http://127.0.0.1:9")
    start_sandbox()
    assert waiting_sandbox() is None
