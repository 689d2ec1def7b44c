"""Faults at work: signals to processes of a stack, a second command, a cut append-only file."""

import ctypes
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shared.process_environment import die_with_parent
from tests.chaos.schedule import Fault, Kind, Session
from tests.redis_files import latest_writes

_PROGRAMS = {
    "redis": "redis-server",
    "judge": "services.judge",
    "sandbox": "services.sandbox",
    "generator": "services.generator",
    "reward": "services.reward",
}
SIGNALS = {
    Kind.KILL: signal.SIGKILL,
    Kind.TERMINATE: signal.SIGTERM,
    Kind.FREEZE: signal.SIGSTOP,
}
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every process whose own parent dies, so that none gets out of sight."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become subreaper")


def end_with_parent() -> None:
    """Get SIGTERM when the parent dies, unless a hang-up is ignored, as by ``nohup``."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        die_with_parent(signal.SIGTERM, os.getppid())()


def kill_all() -> None:
    """Kill every process below this one; those that are adopted meanwhile, too."""
    while left := alive():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)


def alive() -> list[psutil.Process]:
    """Processes below this one that have not ended; those that have are reaped."""
    running = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            # The first thread may have ended before others, which still have its files.
            if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
                running.append(process)
            elif process.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return running


def victims(name: str, command: int) -> list[psutil.Process]:
    """Processes of a name in the stack of a command, by process id."""
    if name == "command":
        return [psutil.Process(command)] if psutil.pid_exists(command) else []
    family = children_of(command)
    if name == "slot":
        servers = [process for process in family if _is(process, "sandbox")]
        return [slot for server in servers for slot in children_of(server.pid)]
    return [process for process in family if _is(process, name)]


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return sorted(psutil.Process(pid).children(), key=lambda process: process.pid)
    except psutil.NoSuchProcess:
        return []


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return _PROGRAMS[name] in " ".join(process.cmdline())
    except psutil.Error:
        return False


@dataclass
class Injector:
    """Injects the faults of a session as their time comes.

    Attributes:
        command: Process id of the session's command.
        output: The run's output folder.
        rival: Starts the command a second time.
        note: Receives each fault with what became of it.
        made: Faults that reached a process, by kind and victim.
    """

    command: int
    output: Path
    rival: Callable[[], None]
    note: Callable[[str], None]
    made: Counter[tuple[str, str]]
    _frozen: list[tuple[float, psutil.Process]] = field(default_factory=list)

    def run(self, session: Session, ended: Callable[[], bool], limit: float) -> bool:
        """Inject faults until the command has ended; whether it did within ``limit`` seconds.

        At the end nothing is frozen.
        """
        gives_up = time.monotonic() + limit
        began = time.monotonic() if session.early else None
        due = list(session.faults)
        try:
            while not ended():
                now = time.monotonic()
                if began is None and victims("judge", self.command):
                    began = now
                while due and began is not None and due[0].at <= now - began:
                    self._inject(due.pop(0), now)
                self._thaw(now)
                if now > gives_up:
                    return False
                time.sleep(0.02)
            return True
        finally:
            self._thaw(float("inf"))

    def _thaw(self, now: float) -> None:
        for entry in [entry for entry in self._frozen if entry[0] <= now]:
            self._frozen.remove(entry)
            with suppress(psutil.NoSuchProcess):
                entry[1].send_signal(signal.SIGCONT)

    def _inject(self, fault: Fault, now: float) -> None:
        if fault.kind is Kind.RIVAL:
            self.rival()
            self._made(fault, "")
        elif fault.kind is Kind.CUT:
            self._cut(fault)
        else:
            self._signal(fault, now)

    def _signal(self, fault: Fault, now: float) -> None:
        processes = victims(fault.victim, self.command)
        if not processes:
            self.note(f"{fault}: not there")
            return
        victim = processes[fault.pick % len(processes)]
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(SIGNALS[fault.kind])
            self._made(fault, str(victim.pid))
        if fault.kind is Kind.FREEZE:
            self._frozen.append((now + fault.seconds, victim))

    def _cut(self, fault: Fault) -> None:
        servers = victims("redis", self.command)
        file = latest_writes(self.output)
        if not servers or not file.exists():
            self.note(f"{fault}: not there")
            return
        with suppress(psutil.NoSuchProcess):
            servers[0].kill()
            while servers[0].status() != psutil.STATUS_ZOMBIE:  # it writes no more then
                time.sleep(0.001)
        size = file.stat().st_size
        os.truncate(file, size * fault.pick // 100)
        self._made(fault, f"to {fault.pick} % of {size} bytes")

    def _made(self, fault: Fault, detail: str) -> None:
        self.made[fault.kind, fault.victim] += 1
        self.note(f"{fault} {detail}".rstrip())
