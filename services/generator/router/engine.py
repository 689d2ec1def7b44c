"""A started replica as the router sees it: its work, and whether it still gives tokens."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from services.generator.router.failures import AttemptError, Reason
from services.generator.router.replica import Replica

if TYPE_CHECKING:
    from services.generator.router.lease import Lease


class Engine:
    """One generation of a replica.

    ``load`` is an estimate of the tokens that it still has to read or write. ``last_token`` is
    when (``time.monotonic``) it was last seen to give one. ``doubt`` says why it gets no new
    requests for now; the next token takes it away.
    """

    def __init__(self, rank: int, generation: int, replica: Replica) -> None:
        self.rank, self.generation = rank, generation
        self.replica = replica
        self.name = replica.name
        self.url = replica.url.rstrip("/")
        self.model = ""
        self.leases: set[Lease] = set()
        self.load = 0
        self.last_used = 0
        self.last_token = float("-inf")
        self.dropped = False
        self.failed_probes = 0
        self.probe_wanted = asyncio.Event()
        self.on_return: Callable[[], None] = lambda: None

    @property
    def doubt(self) -> str:
        if self.failed_probes:
            return "a probe failed"
        return "a connection was dropped" if self.dropped else ""

    @property
    def trusted(self) -> bool:
        return not self.dropped and not self.failed_probes

    def gave_token(self) -> None:
        self.last_token = time.monotonic()
        if not self.trusted:
            self.dropped, self.failed_probes = False, 0
            self.on_return()

    def failed(self, failure: AttemptError) -> None:
        """Look closer: a request failed here."""
        if failure.reason in (Reason.EJECTED, Reason.ROUTER):
            return
        if failure.reason is Reason.CONNECTION:
            self.dropped = True
        self.probe_wanted.set()

    def evict(self, why: str) -> int:
        """Make all requests in flight go elsewhere; returns how many."""
        for lease in self.leases:
            lease.evict(why)
        return len(self.leases)
