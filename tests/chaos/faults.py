"""Faults at work: signals to processes of a stack, a second command, a full disk, and others."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from services.cli.embedded.services import redis_binary
from shared.service.processes import death_signal_setter
from tests.chaos.proxy import SandboxProxy
from tests.chaos.schedule import AWAY, Fault, Kind, Session
from tests.redis_files import latest_writes

_PROGRAMS = {
    "redis": "redis-server",
    "judge": "services.judge",
    "sandbox": "services.sandbox",
    "aggregator": "services.aggregator",
    "generator": "services.generator",
    "prefork": "services.cli.embedded.preloaded",
}
_SIGNALS = {
    Kind.KILL: signal.SIGKILL,
    Kind.TERMINATE: signal.SIGTERM,
    Kind.FREEZE: signal.SIGSTOP,
}
_PR_SET_CHILD_SUBREAPER = 36
DISK_MEGABYTES = 32


def adopt_orphans() -> None:
    """Become the parent of every process whose own parent dies, so that none gets out of sight."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become subreaper")


def end_with_parent() -> None:
    """Get SIGTERM when the parent dies, unless a hang-up is ignored, as by ``nohup``."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        death_signal_setter()(signal.SIGTERM, os.getppid())


def kill_all() -> None:
    """Kill every process below this one; those that are adopted meanwhile, too."""
    while left := alive():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)


def alive() -> list[psutil.Process]:
    """Processes below this one that have not ended; those that have are reaped."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif process.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return found


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
        folder: The folder that ``FULL`` fills.
        output: The run's output folder.
        redis_config: Where the configuration of its Redis is, written by :func:`telling_redis`.
        rival: Starts the command a second time.
        reward: Starts reward traffic on a Redis, if there is none yet.
        sandbox: The proxy before the sandbox.
        note: Receives each fault with what became of it.
        made: Faults that reached a process, by kind and victim.
    """

    command: int
    folder: Path
    output: Path
    redis_config: Path
    rival: Callable[[], None]
    reward: Callable[[str], None]
    sandbox: SandboxProxy
    note: Callable[[str], None]
    made: Counter[tuple[str, str]]
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _away_until: float = 0.0

    def run(self, session: Session, ended: Callable[[], bool], limit: float) -> bool:
        """Inject faults until the command has ended; whether it did within ``limit`` seconds.

        At the end nothing is frozen, and the disk has room.
        """
        gives_up = time.monotonic() + limit
        began = time.monotonic() if session.early else None
        due = list(session.faults)
        try:
            while not ended():
                now = time.monotonic()
                if began is None and victims("aggregator", self.command):
                    began = now
                while due and began is not None and due[0].at <= now - began:
                    self._inject(due.pop(0), now)
                self._undo(now)
                self._keep_away(now)
                if now > gives_up:
                    return False
                time.sleep(0.02)
            return True
        finally:
            self._undo(float("inf"))

    def _undo(self, now: float) -> None:
        for entry in [entry for entry in self._later if entry[0] <= now]:
            self._later.remove(entry)
            entry[1]()

    def _inject(self, fault: Fault, now: float) -> None:
        if fault.kind is Kind.RIVAL:
            self.rival()
            self._made(fault, "")
        elif fault.kind is Kind.CUT:
            self._cut(fault)
        elif fault.kind in (Kind.MEMORY, Kind.SLOW):
            self._disturb_redis(fault, now)
        elif fault.kind is Kind.SANDBOX:
            self._disturb_sandbox(fault, now)
        elif fault.kind is Kind.RESET:
            self._reset(fault)
        elif fault.kind is Kind.REWARD:
            self._reward(fault)
        elif fault.kind is Kind.AGGREGATOR:
            second = self._second_aggregator()
            self._later.append((now + fault.seconds, partial(_end, second)))
            self._made(fault, str(second.pid))
        elif fault.kind is Kind.FULL:
            filler = self.folder / "filler"
            self._later.append((now + fault.seconds, lambda: filler.unlink(missing_ok=True)))
            _fill(filler)
            self._made(fault, "")
        else:
            self._signal(fault, now)

    def _signal(self, fault: Fault, now: float) -> None:
        found = victims(fault.victim, self.command)
        if not found:
            self.note(f"{fault}: not there")
            return
        victim = found[fault.pick % len(found)]
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(_SIGNALS[fault.kind])
            self._made(fault, str(victim.pid))
        if fault.kind is Kind.FREEZE:
            self._later.append((now + fault.seconds, lambda: _go_on(victim)))

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

    def _disturb_redis(self, fault: Fault, now: float) -> None:
        try:
            with closing(_redis(self.redis_config)) as redis:
                if fault.kind is Kind.SLOW:
                    redis.execute_command("CLIENT", "PAUSE", int(1000 * fault.seconds), "ALL")
                else:
                    redis.config_set("maxmemory", 1)
        except (OSError, RedisError):
            self.note(f"{fault}: not there")
            return
        if fault.kind is Kind.MEMORY:
            self._later.append((now + fault.seconds, self._free_memory))
        self._made(fault, "")

    def _disturb_sandbox(self, fault: Fault, now: float) -> None:
        if fault.victim == AWAY:
            self._away_until = max(self._away_until, now + fault.seconds)
        else:
            self.sandbox.disturb(fault.victim)
            self._later.append((now + fault.seconds, lambda: self.sandbox.disturb("")))
        self._made(fault, "")

    def _keep_away(self, now: float) -> None:
        """Kill the sandbox again as soon as it is back."""
        for server in victims("sandbox", self.command) if now < self._away_until else ():
            with suppress(psutil.NoSuchProcess):
                server.kill()

    def _reset(self, fault: Fault) -> None:
        if fault.victim == "sandbox":
            self.sandbox.reset()
            self._made(fault, "")
            return
        try:
            with closing(_redis(self.redis_config)) as redis:
                ended = redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        except (OSError, RedisError):
            self.note(f"{fault}: not there")
            return
        self._made(fault, f"({ended} connections)")

    def _reward(self, fault: Fault) -> None:
        try:
            self.reward(_redis_url(self.redis_config))
        except OSError:
            self.note(f"{fault}: not there")
            return
        self._made(fault, "")

    def _free_memory(self) -> None:
        with suppress(OSError, RedisError), closing(_redis(self.redis_config)) as redis:
            redis.config_set("maxmemory", 0)

    def _second_aggregator(self) -> subprocess.Popen[bytes]:
        settings = {
            "HOST": "127.0.0.1",
            "PORT": "0",
            "TMPDIR": str(self.redis_config.parent / "tmp"),
        }
        with suppress(OSError):
            settings["REDIS_URL"] = _redis_url(self.redis_config)
        return subprocess.Popen(
            [sys.executable, "-m", "services.aggregator"],
            env={"PATH": os.environ["PATH"], **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _made(self, fault: Fault, pid: str) -> None:
        self.made[fault.kind, fault.victim] += 1
        self.note(f"{fault} {pid}".rstrip())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _go_on(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


# Redis


def telling_redis(folder: Path) -> Path:
    """Make a program ``redis-server`` that writes its configuration beside TMPDIR; its folder."""
    folder.mkdir()
    program = folder / "redis-server"
    config = '"${TMPDIR%/*}/redis.conf"'
    program.write_text(
        f'#!/bin/sh\numask 077\n[ $1 = - ] || exec {redis_binary()} "$@"\n'
        f"cat > {config}\nexec {redis_binary()} - < {config}\n"
    )
    program.chmod(0o755)
    return folder


def _redis(config: Path) -> Redis:
    return Redis.from_url(_redis_url(config), socket_timeout=1, retry=Retry(NoBackoff(), 0))


def _redis_url(config: Path) -> str:
    settings = dict(line.split(maxsplit=1) for line in config.read_text().splitlines())
    return f"redis://:{settings['requirepass']}@127.0.0.1:{settings['port']}/0"


# Disk


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk in memory at a folder; yields whether that is allowed here."""
    size = f"size={DISK_MEGABYTES}m,mode=0755"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield bool(mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))
