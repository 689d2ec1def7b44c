"""What can be set about a pool, said about a request, and seen of a sandbox."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a sandbox took a request.

    ``OK``: healthily; enough of them raise its limit by one. ``CONGESTED``: so slowly that it must
    be overloaded. ``REJECTED``: it sent the request away, and may have said for how long.
    ``BROKEN``: no answer came. All but the first lower its limit.
    """

    OK = "ok"
    CONGESTED = "congested"
    REJECTED = "rejected"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How a pool shares its sandboxes out. Times are seconds.

    Attributes:
        max_concurrency: Programs at a time on one sandbox at most.
        initial: The limit of a sandbox of which nothing is known yet.
        minimum: What no trouble lowers a limit below; at least 1.
        lease_ttl: A permit is free this long after its holder was last heard.
        ask_every: A waiter that nobody wakes asks again; one that missed three times is dead.
        busy_share: A limit grows only while this share of it is in use, or somebody waits.
        decrease_factor: What a limit is multiplied with at a sign of overload.
        decrease_window: After a decrease further signs are the same overload for this long.
        eject_after: A sandbox is left alone after so many breakages in a row.
        eject_base: For how long it is the first time; each further time twice as long.
        eject_max: For how long it is at most.
    """

    max_concurrency: int
    initial: int = 4
    minimum: int = 1
    lease_ttl: float = 10.0
    ask_every: float = 1.0
    busy_share: float = 0.75
    decrease_factor: float = 0.7
    decrease_window: float = 1.0
    eject_after: int = 3
    eject_base: float = 1.0
    eject_max: float = 60.0

    @property
    def waiter_ttl(self) -> float:
        return 3 * self.ask_every


@dataclass(frozen=True, slots=True)
class PlaceState:
    """One sandbox of a pool, as it is now. Times are seconds.

    Attributes:
        limit: Programs at a time; what is behind the point is growth under way.
        in_use: Permits held.
        waiting: Who waits for a permit of the pool: the same number for each of its sandboxes.
        ejected_for: How long it is left alone yet because connections to it broke.
        paused_for: How long it gets nothing yet because it asked for that.
    """

    url: str
    limit: float
    in_use: int
    waiting: int
    ejected_for: float
    paused_for: float
