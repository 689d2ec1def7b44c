"""The processes of a reward stack: found by name, and what they hold."""

from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.chaos.faults import victims
from tests.e2e import plumb


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds; memory in MB."""

    memory: float
    descriptors: int
    threads: int
    children: int


def held(process: psutil.Process) -> Held:
    """What a process holds now.

    Raises:
        psutil.Error: It has ended.
    """
    with process.oneshot():
        memory = round(process.memory_info().rss / 2**20, 1)
        children = len(process.children())
        return Held(memory, process.num_fds(), process.num_threads(), children)


def redis_url(command: int) -> str:
    """The URL of the stack's Redis, with its password, as its first judge was told.

    Judges are forked at first, without an environment of their own, so one is killed.
    """
    first = victims("judge", command)[0]
    first.kill()
    urls: list[str] = []

    def told() -> bool:
        for judge in victims("judge", command):
            with suppress(psutil.Error):
                urls.extend(filter(None, [judge.environ().get("REDIS_URL")]))
        return bool(urls)

    plumb.wait_for(told, "a judge that was started again")
    return urls[0]
