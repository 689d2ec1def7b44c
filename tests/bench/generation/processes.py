"""Start and stop of child processes with all their descendants."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

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
    family = {pid: _begun(pid) for pid in descendants(process.pid)}
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    # What it had started may have found another parent meanwhile, or ended and left its number.
    left = [pid for pid, begun in family.items() if begun is not None and _begun(pid) == begun]
    if process.poll() is None:
        left += [process.pid, *descendants(process.pid)]
    send_kill(left)
    process.wait()


def send_kill(pids: Sequence[int]) -> None:
    """SIGKILL for those of the processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        todo.extend(mine := children.get(todo.pop(), []))
        found.extend(mine)
    return found


def _parent(entry: Path) -> int | None:
    fields = _stat(entry)
    return int(fields[1]) if fields else None


def _begun(pid: int) -> str | None:
    """When a process began, which tells it from a later one of the same number."""
    fields = _stat(Path(f"/proc/{pid}"))
    return fields[19] if fields else None


def _stat(entry: Path) -> list[str] | None:
    """What ``/proc`` says of a process from its state on, None where it has gone."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


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
    while (pids := descendants(os.getpid())) and time.monotonic() < give_up:
        send_kill(pids)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
