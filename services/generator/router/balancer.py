"""Which replica gets a request, and which request has to wait."""

import asyncio
import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from services.generator.protocol import RequestError
from services.generator.router.asked import Asked
from services.generator.router.engine import Engine
from services.generator.router.lease import Lease
from services.generator.router.rate import Rate


@dataclass(slots=True, eq=False)
class Ticket:
    """A request's turn: ``tried`` are the engines that gave it no answer."""

    number: int
    asked: Asked
    tried: set[Engine] = field(default_factory=set)
    granted: asyncio.Future[Lease] | None = None


class Balancer:
    """Fewest outstanding tokens first; who finds all places taken waits in the order of arrival.

    Args:
        places: Requests in flight on one engine.
        queue_size: Requests that may wait. Those that were let in once and failed on a replica
            wait beyond it, at the place that their arrival gives them.
    """

    def __init__(self, *, places: int, queue_size: int) -> None:
        self._places = places
        self._queue_size = queue_size
        self._engines: list[Engine] = []
        self._queue: list[Ticket] = []
        self._arrivals = itertools.count()
        self._uses = itertools.count(1)
        self._closed = False
        self._idle = asyncio.Event()
        self._in_flight = 0
        self.rate = Rate()

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def closed(self) -> bool:
        return self._closed

    def add(self, engine: Engine) -> None:
        engine.on_return = self.dispatch
        self._engines.append(engine)
        self.dispatch()

    def remove(self, engine: Engine) -> None:
        if engine in self._engines:
            self._engines.remove(engine)
            # Who waited for a place on this one may have to take one that it tried before.
            self.dispatch()

    def ticket(self, asked: Asked) -> Ticket:
        return Ticket(next(self._arrivals), asked)

    def untried(self, ticket: Ticket) -> bool:
        """Whether a trusted engine is there that the request has not failed on."""
        return any(e.trusted and e not in ticket.tried for e in self._engines)

    async def lease(self, ticket: Ticket) -> Lease:
        """Wait for a place; the caller gives it back to :meth:`release`.

        Raises:
            RequestError: 429 if the queue is full, 503 if the service is being stopped.
        """
        if self._closed:
            raise self.refusal()
        if engine := self._choose(ticket):
            return self._grant(engine, ticket)
        if not ticket.tried and len(self._queue) >= self._queue_size:
            raise RequestError(
                429,
                f"{len(self._queue)} requests wait already; come again later",
                code="queue_full",
                retry_after=self.rate.retry_after(len(self._queue)),
            )
        return await self._wait(ticket)

    def release(self, lease: Lease, *, finished: bool) -> None:
        lease.close()
        self._in_flight -= 1
        if finished:
            self.rate.finished()
        self.dispatch()
        if not self._in_flight:
            self._idle.set()

    def dispatch(self) -> None:
        """Give free places to those who wait."""
        index = 0
        while index < len(self._queue) and self._any_place():
            ticket = self._queue[index]
            if engine := self._choose(ticket):
                del self._queue[index]
                assert ticket.granted is not None
                ticket.granted.set_result(self._grant(engine, ticket))
            else:
                index += 1

    def close(self) -> None:
        """Let nobody in any more; who waits is refused."""
        self._closed = True
        for ticket in self._queue:
            if ticket.granted is not None:
                ticket.granted.set_exception(self.refusal())
        self._queue.clear()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def evict(self, why: str) -> None:
        """End what is in flight on all engines."""
        for engine in self._engines:
            engine.evict(why)

    def refusal(self) -> RequestError:
        retry_after = self.rate.retry_after(max(1, len(self._queue)))
        if self._closed:
            message, code = "the generator is being stopped", "stopping"
        else:
            message, code = "no replica could take the request in time", "no_replica"
        return RequestError(503, message, code=code, retry_after=retry_after)

    async def _wait(self, ticket: Ticket) -> Lease:
        ticket.granted = asyncio.get_running_loop().create_future()
        insort(self._queue, ticket, key=_number)
        self.dispatch()
        try:
            return await ticket.granted
        except asyncio.CancelledError:
            self._leave(ticket)
            raise

    def _leave(self, ticket: Ticket) -> None:
        granted = ticket.granted
        if granted is not None and granted.done() and not granted.cancelled():
            # The place came in the moment in which its request went away.
            if granted.exception() is None:
                self.release(granted.result(), finished=False)
            return
        index = bisect_left(self._queue, ticket.number, key=_number)
        if index < len(self._queue) and self._queue[index] is ticket:
            del self._queue[index]

    def _grant(self, engine: Engine, ticket: Ticket) -> Lease:
        engine.last_used = next(self._uses)
        self._in_flight += 1
        return Lease(engine, ticket.asked)

    def _any_place(self) -> bool:
        return any(e.trusted and len(e.leases) < self._places for e in self._engines)

    def _choose(self, ticket: Ticket) -> Engine | None:
        trusted = [engine for engine in self._engines if engine.trusted]
        others = [engine for engine in trusted if engine not in ticket.tried] or trusted
        free = [engine for engine in others if len(engine.leases) < self._places]
        return min(free, key=_burden, default=None)


def _number(ticket: Ticket) -> int:
    return ticket.number


def _burden(engine: Engine) -> tuple[int, int]:
    return engine.load, engine.last_used
