"""Load balancer: least outstanding requests, with a bounded first-in, first-out queue."""

import asyncio
import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from services.generator.protocol import RequestError
from services.generator.router.replica import Engine, ReplicaSlot

STOPPING = "the generator is shutting down"
# Seconds.
_RETRY_AFTER = 5


@dataclass(slots=True, eq=False)
class Ticket:
    """Position of a request in the queue; ``tried`` has the engines on which it has failed."""

    number: int
    tried: set[Engine] = field(default_factory=set)
    granted: asyncio.Future[ReplicaSlot] | None = None


class Balancer:
    """Assigns requests to the engine with the fewest in flight.

    While all slots are taken, requests wait in order of arrival.

    Args:
        slots: Requests in flight on one engine.
        queue_size: Limit of waiting requests. A request that was admitted and has failed on a
            replica is not subject to it, and keeps its position by arrival.
    """

    def __init__(self, *, slots: int, queue_size: int) -> None:
        self._slots = slots
        self._queue_size = queue_size
        self._engines: list[Engine] = []
        self._queue: list[Ticket] = []
        self._arrivals = itertools.count()
        self._uses = itertools.count(1)
        self._closed = False
        self._idle = asyncio.Event()
        self._in_flight = 0

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def closed(self) -> bool:
        return self._closed

    def add(self, engine: Engine) -> None:
        engine.on_available = self.dispatch
        self._engines.append(engine)
        self.dispatch()

    def remove(self, engine: Engine) -> None:
        if engine in self._engines:
            self._engines.remove(engine)
            # A request that waited for this engine may now retry an engine that it has tried.
            self.dispatch()

    def ticket(self) -> Ticket:
        return Ticket(next(self._arrivals))

    def untried(self, ticket: Ticket) -> bool:
        """Whether any trusted engine has not failed the request yet."""
        return any(e.trusted and e not in ticket.tried for e in self._engines)

    async def acquire(self, ticket: Ticket) -> ReplicaSlot:
        """Wait for a slot; the caller returns it with :meth:`release`.

        Raises:
            RequestError: 429 if the queue is full, 503 during shutdown.
        """
        if self._closed:
            raise self.refusal()
        if engine := self._choose(ticket):
            return self._grant(engine)
        if not ticket.tried and len(self._queue) >= self._queue_size:
            raise RequestError(
                429,
                f"the queue is full: {len(self._queue)} requests are waiting; retry later",
                code="queue_full",
                retry_after=_RETRY_AFTER,
            )
        return await self._wait(ticket)

    def release(self, slot: ReplicaSlot) -> None:
        slot.close()
        self._in_flight -= 1
        self.dispatch()
        if not self._in_flight:
            self._idle.set()

    def dispatch(self) -> None:
        """Grant free slots to waiting requests."""
        index = 0
        while index < len(self._queue) and self._any_free():
            ticket = self._queue[index]
            engine = self._choose(ticket) if _is_waiting(ticket) else None
            if engine and ticket.granted is not None:
                del self._queue[index]
                ticket.granted.set_result(self._grant(engine))
            else:
                index += 1

    def close(self) -> None:
        """Refuse new and waiting requests from now on."""
        self._closed = True
        for ticket in self._queue:
            if ticket.granted is not None and _is_waiting(ticket):
                ticket.granted.set_exception(self.refusal())
        self._queue.clear()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def evict(self, reason: str) -> None:
        """Interrupt all requests in flight on all engines."""
        for engine in self._engines:
            engine.evict(reason)

    def refusal(self) -> RequestError:
        if self._closed:
            message, code = STOPPING, "stopping"
        else:
            message, code = "no replica was available in time", "no_replica"
        return RequestError(503, message, code=code, retry_after=_RETRY_AFTER)

    async def _wait(self, ticket: Ticket) -> ReplicaSlot:
        ticket.granted = asyncio.get_running_loop().create_future()
        insort(self._queue, ticket, key=_arrival)
        self.dispatch()
        try:
            return await ticket.granted
        except asyncio.CancelledError:
            self._leave(ticket)
            raise

    def _leave(self, ticket: Ticket) -> None:
        granted = ticket.granted
        if granted is not None and granted.done() and not granted.cancelled():
            # The request was cancelled after its slot was granted.
            if granted.exception() is None:
                self.release(granted.result())
            return
        index = bisect_left(self._queue, ticket.number, key=_arrival)
        if index < len(self._queue) and self._queue[index] is ticket:
            del self._queue[index]

    def _grant(self, engine: Engine) -> ReplicaSlot:
        engine.last_used = next(self._uses)
        self._in_flight += 1
        return ReplicaSlot(engine)

    def _any_free(self) -> bool:
        return any(e.trusted and len(e.slots) < self._slots for e in self._engines)

    def _choose(self, ticket: Ticket) -> Engine | None:
        trusted = [engine for engine in self._engines if engine.trusted]
        others = [engine for engine in trusted if engine not in ticket.tried] or trusted
        free = [engine for engine in others if len(engine.slots) < self._slots]
        return min(free, key=_load_order, default=None)


def _is_waiting(ticket: Ticket) -> bool:
    """False for a request that was cancelled and whose task has not left the queue yet."""
    return ticket.granted is not None and not ticket.granted.done()


def _arrival(ticket: Ticket) -> int:
    return ticket.number


def _load_order(engine: Engine) -> tuple[int, int]:
    return len(engine.slots), engine.last_used
