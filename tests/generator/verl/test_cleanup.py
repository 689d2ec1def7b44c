"""Cleanup removes exactly the orphans that have the replica's tag."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.generator.backends.verl import cleanup

Start = Callable[..., subprocess.Popen[str]]

SHARED = """
import multiprocessing, os, sys, time
from multiprocessing import resource_tracker, shared_memory
memory = shared_memory.SharedMemory(create=True, size=1000)
lock = multiprocessing.get_context("spawn").Lock()
print(memory.name, "sem." + lock._semlock.name.lstrip("/"), flush=True)
os.kill(resource_tracker._resource_tracker._pid, 9)  # which would clean up
time.sleep(60)
"""


@pytest.fixture
def tag() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(code: str, tag: str | None, title: str = sys.executable) -> subprocess.Popen[str]:
        environment = {**os.environ, **({cleanup.TAG: tag} if tag else {})}
        process = subprocess.Popen(
            [title, "-c", code],
            executable=sys.executable,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_processes_and_memory(start: Start, tag: str) -> None:
    process = start(SHARED, tag)
    assert process.stdout is not None
    names = [Path("/dev/shm") / name for name in process.stdout.readline().split()]
    assert len(names) == 2
    assert all(name.exists() for name in names)
    assert cleanup.shared_memory(tag) == sorted(map(str, names))
    processes, files = cleanup.sweep(tag)
    assert (processes >= 1, files) == (True, 2)
    assert process.wait(60) == -9
    assert not any(name.exists() for name in names)
    assert cleanup.sweep(tag) == (0, 0)


def test_stopped_ones_and_their_children(start: Start, tag: str) -> None:
    code = (
        "import os, signal, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)\n"
        "print(flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"
    )
    process = start(code, tag)
    assert process.stdout is not None
    process.stdout.readline()
    assert cleanup.sweep(tag) == (2, 0)
    assert process.wait(60) == -9


def test_others_are_left_alone(start: Start, tag: str, tmp_path: Path) -> None:
    others = [start("import time; time.sleep(60)", given) for given in (None, "another", tag + "0")]
    mine = tmp_path / "psm_mine"
    mine.touch()
    assert cleanup.sweep(tag, [str(mine), "/dev/shm/../etc/psm_x"]) == (0, 0)
    assert mine.exists()
    assert all(process.poll() is None for process in others)


@pytest.mark.parametrize("reaped", [True, False])
def test_an_engine_that_has_ended(start: Start, tag: str, reaped: bool) -> None:
    sleeps = "print(flush=True); import time; time.sleep(60)"
    engine, worker, _ = processes = [
        start(sleeps, tag, title)
        for title in ("VLLM::EngineCore", "sglang::scheduler_TP0", "ray::IDLE")
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    engines = cleanup.engine_processes(tag)
    assert engines.keys() == {engine.pid, worker.pid}
    assert cleanup.ended(engines) == []
    engine.kill()
    if reaped:
        engine.wait()
    else:
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
    assert cleanup.ended(engines) == [engine.pid]
    # Another process may get the same number.
    assert cleanup.ended({worker.pid: "1"}) == [worker.pid]
