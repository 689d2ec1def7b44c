"""Start and stop of child processes with all their descendants."""

import ctypes
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from shared.service.processes import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_GRACE = 45.0
_HURRIED = 8.0
_SWEEP = 5.0
_ENDING = 25.0
_REPOSITORY = Path(__file__).parents[3]


class ServerError(Exception):
    """A server ended, or is not ready in time."""


class TimeUpError(Exception):
    """The time that a scenario was given is over."""


class TerminatedError(Exception):
    """Somebody sent SIGTERM."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a process is started; ``log`` gets its output."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path


@dataclass(slots=True)
class Running:
    """``began`` is ``time.monotonic`` of the start."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise ``ServerError`` where the process has ended."""
        if (code := self.process.poll()) is not None:
            raise ServerError(f"{self.name} ended with exit code {code}; its log ends:\n{self.end}")

    @property
    def end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


@contextmanager
def running(launch: Launch) -> Iterator[Running]:
    """A process for as long as the block lasts."""
    with launch.log.open("ab") as log:
        process = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(launch.environment),
            cwd=_REPOSITORY,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
    grace = _HURRIED
    try:
        yield Running(launch.name, process, launch.log)
        grace = _GRACE
    finally:
        _stop(process, grace)


def wait_for(ready: Callable[[], bool], server: Running, interval: float = 0.1) -> None:
    """Wait until ``ready`` says so.

    Raises:
        ServerError: The server ended.
    """
    while not ready():
        server.check()
        time.sleep(interval)


def _stop(process: subprocess.Popen[bytes], grace: float) -> None:
    ended = process.poll() is not None
    family = [] if ended else psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    # What it had started may have found another parent meanwhile.
    kill(family)
    process.kill()
    process.wait()


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL for those of the processes that are still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def supervised(seconds: float) -> Iterator[None]:
    """Limit a block's time; when it is left, however that is, no process of its own is left.

    Raises:
        TimeUpError: In the block, some seconds before its time is over, so that it can end well.
        TerminatedError: In the block, on SIGTERM.
    """
    _adopt_orphans()
    signal.signal(signal.SIGALRM, _raise_time_up)
    signal.signal(signal.SIGTERM, _raise_terminated)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds - _ENDING))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all()


def _adopt_orphans() -> None:
    # A daemon whose parent has died becomes our child, where it is found and ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _raise_time_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeUpError


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise TerminatedError


def _end_all() -> None:
    give_up = time.monotonic() + _SWEEP
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < give_up:
        kill(left)
        psutil.wait_procs(left, timeout=0.1)
