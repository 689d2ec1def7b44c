"""Faults at work in the containers of a Compose project: signals, networks, processor, memory."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.chaos.compose_schedule import ContainerFault
from tests.chaos.schedule import Fault
from tests.compose.stack import Stack, docker

# Seconds between attempts to undo a fault, and in which one must succeed.
_AGAIN, _UNDONE = 0.5, 120.0
_STOP_SECONDS = "20"
_LOSSES = ("0.1", "0.3", "1.0")
# So many bits a second; what comes faster waits for up to two seconds, then it is dropped.
_DELAY = ("tbf", "rate", "128kbit", "burst", "4kb", "latency", "2s")
_PART_OF_A_CORE = 0.1

Undo = Callable[[], bool]


@dataclass
class Injector:
    """Injects the faults of a session into a stack as their time comes.

    Attributes:
        stack: The stack, which is up.
        note: Receives each fault with what became of it.
        made: Faults that reached a container, by kind and service.
    """

    stack: Stack
    note: Callable[[str], None]
    made: Counter[tuple[str, str]]
    _later: list[tuple[float, str, Undo]] = field(default_factory=list)
    _restarts: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def run(self, faults: tuple[Fault, ...], ended: Callable[[], bool], limit: float) -> bool:
        """Inject faults until the command has ended; whether it did within ``limit`` seconds.

        Their time begins with the runner's container. At the end all of them are undone.
        """
        gives_up = time.monotonic() + limit
        began = None
        due = list(faults)
        try:
            while not ended():
                now = time.monotonic()
                if began is None and (not faults or self._containers("runner")):
                    began = now
                while due and began is not None and due[0].at <= now - began:
                    self._inject(due.pop(0))
                self._undo(now)
                if now > gives_up:
                    return False
                time.sleep(0.05)
            return True
        finally:
            self._undo_all()

    # Undoing

    def _after(self, fault: Fault, undo: Undo) -> None:
        self._later.append((time.monotonic() + fault.seconds, str(fault), undo))

    def _undo(self, now: float) -> None:
        """Undo what is due; what fails, as in a container that just starts, is tried again."""
        due = [entry for entry in self._later if entry[0] <= now]
        self._later = [entry for entry in self._later if entry[0] > now]
        for _, what, undo in due:
            if not undo():
                self._later.append((time.monotonic() + _AGAIN, what, undo))

    def _undo_all(self) -> None:
        gives_up = time.monotonic() + _UNDONE
        while self._later:
            self._undo(float("inf"))
            left = [what for _, what, _ in self._later]
            assert time.monotonic() < gives_up, f"cannot be undone: {left}"
            time.sleep(0.05)
        for restart in self._restarts:
            restart.wait()

    # Faults

    def _inject(self, fault: Fault) -> None:
        if fault.kind is ContainerFault.MEMORY:
            self._told(fault, self._fill_memory(fault))
            return
        found = self._containers(fault.victim)
        if not found:
            self.note(f"{fault}: not there")
            return
        actions: dict[ContainerFault, Callable[[Fault, str], str]] = {
            ContainerFault.KILL: self._kill,
            ContainerFault.DOWN: self._down,
            ContainerFault.PROCESS: self._kill_process,
            ContainerFault.STOP: self._stop,
            ContainerFault.FREEZE: self._freeze,
            ContainerFault.SLOW: self._slow,
            ContainerFault.PARTITION: self._partition,
            ContainerFault.LOSS: self._lose,
            ContainerFault.DELAY: self._delay,
        }
        try:
            done = actions[ContainerFault(fault.kind)](fault, found[fault.pick % len(found)])
        except (AssertionError, psutil.NoSuchProcess):  # the container was removed meanwhile
            done = ""
        self._told(fault, done)

    def _told(self, fault: Fault, done: str) -> None:
        """Count a fault of which something was ``done``, and note it."""
        if done:
            self.made[fault.kind, fault.victim] += 1
        self.note(f"{fault} {done}" if done else f"{fault}: not there")

    def _containers(self, service: str) -> list[str]:
        return sorted(self.stack.containers(service, oneoff=service == "runner"))

    def _kill(self, fault: Fault, container: str) -> str:
        state = _inspected(container)["State"]
        pid = 0 if state["Paused"] else int(state["Pid"])  # what is frozen dies as it thaws
        return f"{container[:12]}, {pid}" if pid and _signalled(pid) else ""

    def _down(self, fault: Fault, container: str) -> str:
        if not _done("kill", container):
            return ""
        if fault.victim != "runner":
            self._after(fault, partial(_started, container))
        return container[:12]

    def _kill_process(self, fault: Fault, container: str) -> str:
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(main_process(container)).children(recursive=True)
            if found and not _inspected(container)["State"]["Paused"]:
                process = found[fault.pick % len(found)]
                shown = " ".join(process.cmdline())[:60]
                process.kill()
                return f"{container[:12]}, {process.pid} {shown}"
        return ""

    def _stop(self, fault: Fault, container: str) -> str:
        if fault.victim == "runner":
            return container[:12] if _done("kill", "--signal", "TERM", container) else ""
        command = ["docker", "restart", "--time", _STOP_SECONDS, container]
        restart = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._restarts.append(restart)
        return container[:12]

    def _freeze(self, fault: Fault, container: str) -> str:
        if not _done("pause", container):
            return ""
        self._after(fault, partial(_thawed, container))
        return container[:12]

    def _slow(self, fault: Fault, container: str) -> str:
        cores = _inspected(container)["HostConfig"]["NanoCpus"] / 1e9 or os.cpu_count() or 1
        if cores <= _PART_OF_A_CORE or not _done(
            "update", "--cpus", str(_PART_OF_A_CORE), container
        ):
            return ""
        self._after(fault, partial(_gone_or_done, container, "update", "--cpus", str(cores)))
        return container[:12]

    def _partition(self, fault: Fault, container: str) -> str:
        networks: dict[str, dict[str, Any]] = _inspected(container)["NetworkSettings"]["Networks"]
        if not networks:
            return ""
        name = sorted(networks)[fault.pick % len(networks)]
        if not _done("network", "disconnect", name, container):
            return ""
        aliases = [one for one in networks[name]["Aliases"] or [] if one != container[:12]]
        self._after(fault, partial(_connected, container, name, aliases))
        return f"{container[:12]} from {name}"

    def _lose(self, fault: Fault, container: str) -> str:
        share = _LOSSES[fault.pick % len(_LOSSES)]
        drop = ("-m", "statistic", "--mode", "random", "--probability", share, "-j", "DROP")
        rules = [("INPUT", "!", "-i", "lo", *drop), ("OUTPUT", "!", "-o", "lo", *drop)]
        pid = main_process(container)
        if not pid or not all(_inside(pid, "iptables", "-A", *rule) for rule in rules):
            return ""
        for rule in rules:
            undo = partial(_gone_or_inside, psutil.Process(pid), "iptables", "-D", *rule)
            self._after(fault, undo)
        return f"{container[:12]} {share}"

    def _delay(self, fault: Fault, container: str) -> str:
        pid = main_process(container)
        cards = _cards(pid) if pid else []
        for card in cards:
            if not _inside(pid, "tc", "qdisc", "add", "dev", card, "root", *_DELAY):
                return ""
            undo = partial(
                _gone_or_inside, psutil.Process(pid), "tc", "qdisc", "del", "dev", card, "root"
            )
            self._after(fault, undo)
        return container[:12] if cards else ""

    def _fill_memory(self, fault: Fault) -> str:
        try:
            with closing(connected(self.stack)) as redis:
                allowed = redis.config_get("maxmemory")["maxmemory"]
                if allowed == "1":
                    return ""
                redis.config_set("maxmemory", 1)
        except (AssertionError, ValueError, OSError, RedisError):
            return ""
        self._after(fault, partial(_free_memory, self.stack, allowed))
        return f"of {allowed}"


# Containers


def main_process(container: str) -> int:
    """The first process of a container, as the host numbers it; 0 where it does not run."""
    try:
        return int(_inspected(container)["State"]["Pid"])
    except AssertionError:  # it was removed
        return 0


def _inspected(container: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(docker("inspect", container))
    return found[0]


def _exists(container: str) -> bool:
    return _done("inspect", container)


def _done(*arguments: str) -> bool:
    """Whether a command of Docker succeeds."""
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0


def _gone_or_done(container: str, *arguments: str) -> bool:
    return _done(*arguments, container) or not _exists(container)


def _signalled(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _started(container: str) -> bool:
    return _done("start", container)


def _thawed(container: str) -> bool:
    return _done("unpause", container) or not (
        _exists(container) and _inspected(container)["State"]["Paused"]
    )


def _connected(container: str, network: str, aliases: list[str]) -> bool:
    """Connect a container; a restart may have done it, without the aliases, if it had no other."""
    if not _exists(container):
        return True
    found = _inspected(container)["NetworkSettings"]["Networks"].get(network)
    if found is not None and {*aliases} <= {*(found["Aliases"] or ())}:
        return True
    if found is not None:
        _done("network", "disconnect", network, container)
    named = [part for alias in aliases for part in ("--alias", alias)]
    return _done("network", "connect", *named, network, container)


# Network namespaces


def _inside(pid: int, *command: str) -> bool:
    """Whether a program of the host succeeds in the network of a process."""
    entered = ["nsenter", "--target", str(pid), "--net", *command]
    return subprocess.run(entered, capture_output=True, check=False).returncode == 0


def _gone_or_inside(process: psutil.Process, *command: str) -> bool:
    """As :func:`_inside`; a network that is gone with its container needs no undoing."""
    return not process.is_running() or _inside(process.pid, *command) or not process.is_running()


def _cards(pid: int) -> list[str]:
    """Names of the network interfaces of a process, without that of the loopback."""
    done = subprocess.run(
        ["nsenter", "--target", str(pid), "--net", "ip", "-json", "link"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout or "[]")
    return [one["ifname"] for one in found if one["ifname"] != "lo"]


# Redis


def connected(stack: Stack) -> Redis:
    """Connect to a stack's Redis as the operator."""
    (container,) = stack.containers("redis")
    networks = _inspected(container)["NetworkSettings"]["Networks"]
    addresses = [one["IPAddress"] for one in networks.values() if one["IPAddress"]]
    assert addresses, "Redis has no address"
    return Redis(
        host=addresses[0],
        password=stack.settings["REDIS_PASSWORD"],
        socket_timeout=5,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )


def _free_memory(stack: Stack, allowed: str) -> bool:
    try:
        with closing(connected(stack)) as redis:
            redis.config_set("maxmemory", allowed)
    except (AssertionError, ValueError, OSError, RedisError):
        return False
    return True
