"""Schedules of the faults that disturb reward traffic: what, to which process, and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """Kinds of faults.

    ``KILL`` is SIGKILL, ``TERMINATE`` SIGTERM, ``FREEZE`` SIGSTOP and later SIGCONT, ``GONE`` a
    process that is killed again as soon as it is back, ``CUT`` all connections to it broken.
    """

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    GONE = "gone"
    CUT = "cut"


# How often each is drawn. The service itself is never killed: its memory is what is measured.
_WEIGHTS = {
    (Kind.KILL, "judge"): 6,
    (Kind.KILL, "sandbox"): 3,
    (Kind.KILL, "slot"): 3,
    (Kind.KILL, "redis"): 2,
    (Kind.TERMINATE, "judge"): 3,
    (Kind.TERMINATE, "sandbox"): 2,
    (Kind.TERMINATE, "redis"): 1,
    (Kind.FREEZE, "judge"): 3,
    (Kind.FREEZE, "sandbox"): 2,
    (Kind.FREEZE, "slot"): 2,
    (Kind.FREEZE, "redis"): 2,
    (Kind.FREEZE, "reward"): 2,
    (Kind.GONE, "sandbox"): 1,
    (Kind.CUT, "reward"): 3,
    (Kind.CUT, "redis"): 3,
}
# Seconds; a judge's lease lives for 10.
_FREEZES = (0.2, 1.0, 3.0, 12.0)
_GONE = (4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault ``at`` seconds after the start, for ``seconds`` where it has a duration.

    ``pick`` chooses among several processes of the victim's name, modulo their number.
    """

    at: float
    kind: Kind
    victim: str
    pick: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        duration = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.kind} {self.victim}{duration}"


def schedule(seed: int, seconds: float, every: float) -> list[Fault]:
    """Draw the faults of a run of ``seconds``, one about ``every`` so many; none at its ends."""
    return list(_faults(Random(seed), seconds, every))


def _faults(random: Random, seconds: float, every: float) -> Iterator[Fault]:
    at = random.expovariate(1 / every)
    while at < seconds:
        kind, victim = random.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        durations = {Kind.FREEZE: _FREEZES, Kind.GONE: _GONE}.get(kind, (0.0,))
        yield Fault(round(at, 2), kind, victim, random.randrange(100), random.choice(durations))
        # Sometimes the next one comes together with it.
        at += random.expovariate(1 / every) if random.random() < 0.8 else random.uniform(0, 1)
