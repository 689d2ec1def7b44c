"""Schedules of faults: what happens to which process of a run's stack, and when, from a seed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

# Sessions of a round from this one on have no faults, so that every round ends.
QUIET = 5
QUIET_SESSIONS = 3


class Kind(StrEnum):
    """Kinds of faults.

    ``KILL`` is SIGKILL, ``TERMINATE`` SIGTERM, ``FREEZE`` SIGSTOP and later SIGCONT, ``RIVAL`` the
    same command started beside the first, and ``FULL`` a full disk below the output folder.
    ``CUT`` is SIGKILL of Redis while a part of its
    append-only file gets lost, ``MEMORY`` a Redis that takes no more writes, ``SLOW`` one that
    answers nobody, and ``AGGREGATOR`` a second aggregator of the same runs. ``SANDBOX`` is one
    that is away, hung or slow, or answers nonsense, ``RESET`` the end of all connections to a
    service, and ``REWARD`` a reward service with traffic on the same Redis and judges, until the
    session ends.
    """

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    RIVAL = "rival"
    FULL = "full"
    CUT = "cut"
    MEMORY = "memory"
    SLOW = "slow"
    AGGREGATOR = "aggregator"
    SANDBOX = "sandbox"
    RESET = "reset"
    REWARD = "reward"


SIGNALS = (Kind.KILL, Kind.TERMINATE, Kind.FREEZE)
# Names of processes, and how often each is drawn. "command" is supervisor and runner in one.
VICTIMS = {
    "command": 4,
    "redis": 3,
    "judge": 5,
    "sandbox": 3,
    "slot": 3,
    "aggregator": 3,
    "generator": 2,
    "prefork": 1,
}
_WEIGHTS = {
    Kind.KILL: 10,
    Kind.TERMINATE: 3,
    Kind.FREEZE: 3,
    Kind.RIVAL: 1,
    Kind.FULL: 1,
    Kind.CUT: 1,
    Kind.MEMORY: 1,
    Kind.SLOW: 1,
    Kind.AGGREGATOR: 1,
    Kind.SANDBOX: 3,
    Kind.RESET: 1,
    Kind.REWARD: 1,
}
# What a sandbox does: the first three are no answers, or late ones; the others are wrong ones.
AWAY, HUNG, LATE = "away", "hung", "late"
WRONG_ANSWERS = ("500", "503", "garbage", "shape", "truncated")
SANDBOXES = (AWAY, HUNG, LATE, *WRONG_ANSWERS)
# Services behind connections that can be cut.
CONNECTED = ("redis", "sandbox")
# Seconds; a judge's lease lives for 10.
_FREEZES = (0.2, 0.2, 1.0, 1.0, 3.0, 12.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault ``at`` seconds after its session began, for ``seconds`` where it has a duration.

    ``pick`` chooses among several processes of the victim's name, modulo their number; of ``CUT``
    it is the part of the file that is kept, in percent. The victim of
    ``SANDBOX`` is one of ``SANDBOXES``.
    """

    at: float
    kind: StrEnum
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


def session(seed: int, number: int, kinds: Collection[Kind], *, dense: bool = False) -> Session:
    """Draw the faults of a round's session; the same arguments give the same faults.

    A ``dense`` one has about four times as many, and seldom ends by a kill of the command.
    """
    if number >= QUIET:
        return Session()
    random = Random(f"{seed}/{number}")
    early = random.random() < 0.2
    faults: list[Fault] = []
    at = random.uniform(0.0, 1.5)
    for _ in range(random.randint(20, 40) if dense else random.randint(3, 8)):
        faults += _burst(random, at, [kind for kind in _WEIGHTS if kind in kinds], dense)
        at += random.uniform(0.1, 0.6 if dense else 1.2)
    return Session(early, tuple(faults))


def _burst(random: Random, at: float, kinds: list[Kind], dense: bool) -> list[Fault]:
    """Draw up to four faults that come together."""
    count = random.choice((1, 1, 2, 3, 4)) if kinds else 0
    chosen = random.choices(kinds, [_WEIGHTS[kind] for kind in kinds], k=count) if kinds else []
    weights = VICTIMS | ({"command": 1} if dense else {})
    return [_fault(random, round(at, 2), kind, weights) for kind in chosen]


def _fault(random: Random, at: float, kind: Kind, weights: Mapping[str, int]) -> Fault:
    victim, pick = random.choices([*weights], [*weights.values()])[0], random.randrange(100)
    if kind in (Kind.RIVAL, Kind.REWARD):
        return Fault(at, kind)
    if kind is Kind.SANDBOX:
        return Fault(at, kind, random.choice(SANDBOXES), seconds=random.choice((0.5, 2.0, 4.0)))
    if kind is Kind.RESET:
        return Fault(at, kind, random.choice(CONNECTED))
    if kind is Kind.CUT:
        return Fault(at, kind, pick=pick)
    if kind in (Kind.FULL, Kind.MEMORY, Kind.SLOW, Kind.AGGREGATOR):
        return Fault(at, kind, seconds=random.choice((0.5, 2.0)))
    return Fault(at, kind, victim, pick, random.choice(_FREEZES) if kind is Kind.FREEZE else 0.0)
