"""Schedules of faults: what happens to which process of a run's stack, and when, from a seed."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from random import Random

# Sessions of a round from this one on have no faults, so that every round ends.
QUIET = 4
QUIET_SESSIONS = 3


class Kind(StrEnum):
    """Kinds of faults.

    ``KILL`` is SIGKILL, ``TERMINATE`` SIGTERM, ``FREEZE`` SIGSTOP and later SIGCONT, ``RIVAL`` the
    same command started beside the first. ``CUT`` is SIGKILL of Redis while a part of its
    append-only file gets lost.
    """

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    RIVAL = "rival"
    CUT = "cut"


SIGNALS = (Kind.KILL, Kind.TERMINATE, Kind.FREEZE)
# Names of processes, and how often each is drawn. "command" is supervisor, runner, a judge and the
# aggregator in one, and its end is the session's.
VICTIMS = {
    "command": 1,
    "redis": 6,
    "judge": 10,
    "sandbox": 6,
    "slot": 6,
    "generator": 4,
}
_WEIGHTS = {Kind.KILL: 10, Kind.TERMINATE: 3, Kind.FREEZE: 3, Kind.RIVAL: 1, Kind.CUT: 1}
# Seconds; a judge's lease lives for 10.
FREEZES = (0.2, 0.2, 1.0, 1.0, 3.0, 12.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault ``at`` seconds after its session began, for ``seconds`` where it has a duration.

    ``pick`` chooses among several processes of the victim's name, modulo their number; of ``CUT``
    it is the part of the file that is kept, in percent.
    """

    at: float
    kind: Kind
    victim: str = ""
    pick: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        duration = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.kind} {self.victim}".rstrip() + duration


@dataclass(frozen=True, slots=True)
class Session:
    """One start of the command, and the faults in order of time.

    The time of the faults begins with the command if the session is ``early``, otherwise with the
    last process of its stack.
    """

    early: bool = False
    faults: tuple[Fault, ...] = ()


def session(seed: int, number: int, kinds: Collection[Kind]) -> Session:
    """Draw the faults of a round's session; the same arguments give the same faults."""
    if number >= QUIET:
        return Session()
    random = Random(f"{seed}/{number}")
    weights = {kind: weight for kind, weight in _WEIGHTS.items() if kind in kinds}
    early = random.random() < 0.2
    faults: list[Fault] = []
    at = random.uniform(0.0, 1.5)
    for _ in range(random.randint(40, 80) if weights else 0):
        together = random.choice((1, 1, 2, 3, 4))
        for kind in random.choices([*weights], [*weights.values()], k=together):
            faults.append(_fault(random, round(at, 2), kind))
        at += random.uniform(0.1, 0.6)
    return Session(early, tuple(faults))


def _fault(random: Random, at: float, kind: Kind) -> Fault:
    victim, pick = random.choices([*VICTIMS], [*VICTIMS.values()])[0], random.randrange(100)
    if kind not in SIGNALS:
        return Fault(at, kind, pick=pick)
    return Fault(at, kind, victim, pick, random.choice(FREEZES) if kind is Kind.FREEZE else 0.0)
