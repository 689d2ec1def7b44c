"""Schedules of faults for the stack of docker-compose.yml: which container, when, from a seed."""

from collections.abc import Collection
from enum import StrEnum
from random import Random

from tests.chaos.schedule import QUIET, Fault, Session


class ContainerFault(StrEnum):
    """Kinds of faults.

    ``KILL`` is SIGKILL of a container's first process, after which the restart policy starts it
    again; ``DOWN`` is ``docker kill``, after which it stays down until it is started; ``PROCESS``
    is SIGKILL of any other process in it. ``STOP`` is ``docker restart``: SIGTERM, and SIGKILL
    after 20 s. ``FREEZE`` is ``docker pause``. ``SLOW`` leaves it a part of a core. ``PARTITION``
    disconnects it from one of its networks, ``LOSS`` drops packets of all of them, ``DELAY`` makes
    them wait. ``MEMORY`` is a Redis that takes no more writes.
    """

    KILL = "kill"
    DOWN = "down"
    PROCESS = "process"
    STOP = "stop"
    FREEZE = "freeze"
    SLOW = "slow"
    PARTITION = "partition"
    LOSS = "loss"
    DELAY = "delay"
    MEMORY = "memory"


# A container is killed by each of them.
KILLS = (ContainerFault.KILL, ContainerFault.DOWN, ContainerFault.PROCESS)
AIMED = tuple(kind for kind in ContainerFault if kind is not ContainerFault.MEMORY)
# Services, and how often each is drawn. The runner's container is that of the session's command.
SERVICES = {
    "runner": 1,
    "redis": 3,
    "judge": 6,
    "sandbox": 4,
    "aggregator": 3,
    "generator": 2,
}
_WEIGHTS = {
    ContainerFault.KILL: 8,
    ContainerFault.DOWN: 3,
    ContainerFault.PROCESS: 8,
    ContainerFault.STOP: 1,
    ContainerFault.FREEZE: 2,
    ContainerFault.SLOW: 1,
    ContainerFault.PARTITION: 2,
    ContainerFault.LOSS: 2,
    ContainerFault.DELAY: 1,
    ContainerFault.MEMORY: 1,
}
# Seconds; a judge's lease lives for 10.
_SECONDS = {
    ContainerFault.DOWN: (0.2, 1.0, 3.0),
    ContainerFault.FREEZE: (0.2, 1.0, 3.0, 12.0),
    ContainerFault.SLOW: (1.0, 3.0),
    ContainerFault.PARTITION: (0.5, 2.0, 6.0, 12.0),
    ContainerFault.LOSS: (1.0, 3.0, 6.0),
    ContainerFault.DELAY: (1.0, 3.0),
    ContainerFault.MEMORY: (0.5, 2.0),
}


def session(
    seed: int, number: int, kinds: Collection[ContainerFault], *, dense: bool = False
) -> Session:
    """Draw the faults of a round's session; the same arguments give the same faults.

    ``dense`` ones follow each other in half the time, and meet no runner in the last two thirds.
    """
    if number >= QUIET:
        return Session()
    random = Random(f"compose/{seed}/{number}")
    chosen = [kind for kind in _WEIGHTS if kind in kinds]
    faults: list[Fault] = []
    at = random.uniform(0.0, 1.0)
    count = random.randint(12, 24)
    for index in range(count if chosen else 0):
        at += random.uniform(0.1, 1.0 if dense else 2.0)
        spared = {"runner"} if dense and index > count / 3 else set()
        for kind in random.choices(
            chosen, [_WEIGHTS[kind] for kind in chosen], k=random.choice((1, 1, 2, 3))
        ):
            faults.append(_fault(random, round(at, 2), kind, spared))
    return Session(faults=tuple(faults))


def _fault(random: Random, at: float, kind: ContainerFault, spared: Collection[str]) -> Fault:
    weights = {name: weight for name, weight in SERVICES.items() if name not in spared}
    victim, pick = random.choices([*weights], [*weights.values()])[0], random.randrange(100)
    seconds = random.choice(_SECONDS.get(kind, (0.0,)))
    return Fault(at, kind, "" if kind is ContainerFault.MEMORY else victim, pick, seconds)
