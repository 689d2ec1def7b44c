"""The processes of a reward stack: found by name, and what they hold."""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.chaos.faults import children_of, victims
from tests.e2e import plumb

NAMES = ("command", "reward", "judge", "sandbox", "slot", "redis")


def processes(name: str, command: int) -> list[psutil.Process]:
    """Processes of a name in the stack of a command, by process id."""
    if name != "reward":
        return victims(name, command)
    found = []
    for process in children_of(command):
        with suppress(psutil.Error):
            if "services.reward" in " ".join(process.cmdline()):
                found.append(process)
    return found


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds; memory in MB, its age and CPU time in seconds."""

    name: str
    pid: int
    age: float
    memory: float
    descriptors: int
    threads: int
    children: int
    cpu: float

    def document(self) -> dict[str, object]:
        return asdict(self)


def held(command: int, now: float) -> list[Held]:
    """What each process of the stack holds; ``now`` is Unix time."""
    return [
        found
        for name in NAMES
        for process in processes(name, command)
        if (found := _held(name, process, now)) is not None
    ]


def _held(name: str, process: psutil.Process, now: float) -> Held | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            return Held(
                name,
                process.pid,
                round(now - process.create_time(), 1),
                round(process.memory_info().rss / 2**20, 2),
                process.num_fds(),
                process.num_threads(),
                len(process.children()),
                round(sum(times[:4]), 2),  # its own and its ended children's
            )
    except (psutil.Error, FileNotFoundError):
        return None


def redis_url(command: int) -> str:
    """The URL of the stack's Redis, with its password, as its first judge was told.

    Judges are forked at first, without an environment of their own, so one is killed.
    """
    first = victims("judge", command)[0]
    first.kill()
    found: list[str] = []

    def told() -> bool:
        for judge in victims("judge", command):
            with suppress(psutil.Error):
                found.extend(filter(None, [judge.environ().get("REDIS_URL")]))
        return bool(found)

    plumb.wait_for(told, "a judge that was started again")
    return found[0]


def files(*folders: Path) -> tuple[int, int]:
    """Number and bytes of all files below some folders."""
    number = size = 0
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                with suppress(OSError):
                    size += Path(folder, name).lstat().st_size
                    number += 1
    return number, size
