"""A run's progress as server-sent events."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

from aiohttp import web

from services.aggregator.api.failures import unavailable
from services.aggregator.api.models import RunSummary
from shared.run_record import RunState

_EVERY = 1.0
_HEARTBEAT = 15.0
_SLOW = 30.0
_MOST = 100
_FINAL = tuple(state for state in RunState if state.final)

Look = Callable[[], Awaitable[RunSummary | None]]


class ProgressEvents:
    """Streams of progress. Each holds one summary at a time: a slow client misses those between,
    and one that takes nothing for half a minute is let go."""

    def __init__(self) -> None:
        self._open = 0
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Finish all streams, for the server stops."""
        self._ending.set()

    async def stream(self, request: web.Request, look: Look) -> web.StreamResponse:
        """Send a ``progress`` event when the run has moved, until it is published or failed.

        The last event is ``end``, or ``gone`` where the run is no more.
        """
        if self._open >= _MOST:
            raise unavailable(f"{_MOST} clients follow runs already; ask /api/runs instead")
        self._open += 1
        try:
            response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
            response.content_type = "text/event-stream"
            await response.prepare(request)
            try:
                await self._follow(response, look)
            except (TimeoutError, ConnectionResetError, sqlite3.OperationalError):
                response.force_close()  # a client that is there asks again
            return response
        finally:
            self._open -= 1

    async def _follow(self, response: web.StreamResponse, look: Look) -> None:
        last: RunSummary | None = None
        silent = 0.0
        while not self._ending.is_set():
            summary = await look()
            if summary is None:
                await _send(response, _event("gone", "{}"))
                return
            silent += _EVERY
            if last is None or _moved(last, summary):
                await _send(response, _event("progress", summary.model_dump_json()))
                last, silent = summary, 0.0
            elif silent >= _HEARTBEAT:
                await _send(response, b": alive\n\n")
                silent = 0.0
            if summary.state in _FINAL:
                await _send(response, _event("end", summary.model_dump_json()))
                return
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_EVERY):
                await self._ending.wait()
        except TimeoutError:
            return


def _moved(last: RunSummary, now: RunSummary) -> bool:
    """Whether more than the speed is another."""
    still = {"rate": None, "seconds_left": None}
    return last.model_copy(update=still) != now.model_copy(update=still)


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_SLOW):
        await response.write(data)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()
