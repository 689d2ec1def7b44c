"""Prefork server: forked services are children of this process like executed ones."""

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from services.cli.embedded.prefork import ForkedProcess, Prefork
from services.cli.embedded.supervisor import ChildProcess
from shared.errors import ServiceError


@pytest.fixture
def prefork() -> Iterator[Prefork]:
    prefork = Prefork(["aggregator"])
    yield prefork
    prefork.close()


def service(folder: Path, name: str, **environment: str) -> ChildProcess:
    given = {"PATH": os.environ["PATH"], "PORT": "0", "LOG_LEVEL": "INFO", **environment}
    command = [sys.executable, "-m", f"services.{name}"]
    return ChildProcess(name, command, folder / f"{name}.log", given)


def replay(folder: Path) -> ChildProcess:
    completions = folder / "completions.jsonl"
    completions.write_text('{"problem_id": "a", "completion": "b"}\n')
    return service(folder, "generator", PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS=str(completions))


def started(child: ChildProcess, prefork: Prefork) -> ForkedProcess:
    child.start(partial(prefork.fork, child.name))
    assert isinstance(child.process, ForkedProcess)
    return child.process


def server_of(prefork: Prefork) -> psutil.Process:
    return psutil.Process(prefork._server.pid)


def test_a_forked_service_is_a_child_with_its_own_name_session_and_log(
    prefork: Prefork, tmp_path: Path
) -> None:
    child = replay(tmp_path)
    forked = started(child, prefork)
    try:
        port = child.wait_for_port()
        process = psutil.Process(forked.pid)
        assert process.ppid() == os.getpid()
        assert [part for part in process.cmdline() if part] == list(child.command)
        assert os.getsid(forked.pid) == forked.pid
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            assert json.load(answer)["completions"] == 1
        events = [json.loads(line)["event"] for line in child.log.read_text().splitlines()]
        assert "listening" in events
        child.terminate()
        assert forked.wait(60) == 0
    finally:
        child.stop(0)


def test_a_service_has_the_given_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    prefork = Prefork(["generator"])
    child = replay(tmp_path)
    try:
        forked = started(child, prefork)
        child.wait_for_port()
        assert "SECRET_OF_THE_SHELL" not in psutil.Process(forked.pid).environ()
        assert "SECRET_OF_THE_SHELL" not in server_of(prefork).environ()
    finally:
        child.stop(0)
        prefork.close()


def test_refused_settings_are_the_exit_code_and_the_last_line_of_the_log(
    prefork: Prefork, tmp_path: Path
) -> None:
    child = service(tmp_path, "judge", PORT="many")
    started(child, prefork)
    with pytest.raises(ServiceError, match=r"judge ended with exit code 2 .*PORT"):
        child.wait_for_port()
    with pytest.raises(ServiceError, match="exit code 2"):
        child.restart_if_dead()


def test_a_killed_service_is_executed_again_on_its_port(prefork: Prefork, tmp_path: Path) -> None:
    child = replay(tmp_path)
    forked = started(child, prefork)
    try:
        port = child.wait_for_port()
        os.kill(forked.pid, signal.SIGKILL)
        assert forked.wait(60) == -signal.SIGKILL
        assert child.restart_if_dead()
        assert not isinstance(child.process, ForkedProcess)
        assert child.wait_for_port() == port
    finally:
        child.stop(0)


def test_services_outlive_the_server_and_are_executed_without_it(tmp_path: Path) -> None:
    prefork = Prefork([])
    first, second = replay(tmp_path), replay(tmp_path)
    try:
        forked = started(first, prefork)
        prefork.close()
        first.wait_for_port()
        assert first.running
        second.start(partial(prefork.fork, "generator"))
        assert not isinstance(second.process, ForkedProcess)
        second.wait_for_port()
        assert psutil.Process(forked.pid).ppid() == os.getpid()
    finally:
        first.stop(0)
        second.stop(0)


def test_the_server_has_one_thread_when_it_forks(tmp_path: Path) -> None:
    """A fork copies one thread, so locks that another one holds would stay locked."""
    prefork = Prefork()
    child = replay(tmp_path)
    try:
        started(child, prefork)  # served after the imports or between them
        child.wait_for_port()
        deadline = time.monotonic() + 60
        while server_of(prefork).status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server_of(prefork).num_threads() == 1
    finally:
        child.stop(0)
        prefork.close()
