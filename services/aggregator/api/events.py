"""Server-sent events (SSE) of a run's progress, with backpressure and heartbeats."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

from aiohttp import web

from services.aggregator.api.models import RunSummary

ReadSummary = Callable[[], Awaitable[RunSummary | None]]


class TooManyStreamsError(Exception):
    """The limit on open event streams is reached."""


class ProgressEvents:
    """Event streams of runs, with backpressure.

    Each stream keeps only the latest summary, so a slow client skips intermediate ones. A client
    that reads nothing for ``write_timeout`` is disconnected.
    """

    def __init__(
        self,
        interval: float = 1.0,
        heartbeat: float = 15.0,
        write_timeout: float = 30.0,
        max_streams: int = 100,
    ) -> None:
        """Set the limits; times are in seconds.

        Args:
            interval: Polling interval of a run's progress.
            heartbeat: Time without events after which a comment is sent.
            write_timeout: Time that a client may take to receive an event.
            max_streams: Maximum number of open streams.
        """
        self._interval = interval
        self._heartbeat = heartbeat
        self._write_timeout = write_timeout
        self._max_streams = max_streams
        self._open = 0
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End all streams for the server's shutdown."""
        self._ending.set()

    async def stream(self, request: web.Request, read: ReadSummary) -> web.StreamResponse:
        """Send a ``progress`` event on every change until the run is published or failed.

        The last event is ``end``, or ``gone`` when the run was deleted.

        Raises:
            TooManyStreamsError: ``max_streams`` streams are open.
        """
        if self._open >= self._max_streams:
            raise TooManyStreamsError(
                f"{self._max_streams} event streams are open already "
                "(PLUMBLINE_AGGREGATOR_MAX_STREAMS)"
            )
        self._open += 1
        try:
            response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
            response.content_type = "text/event-stream"
            await response.prepare(request)
            try:
                await self._follow(response, read)
            except (TimeoutError, ConnectionResetError, sqlite3.OperationalError):
                response.force_close()  # the client reconnects if it is alive
            return response
        finally:
            self._open -= 1

    async def _follow(self, response: web.StreamResponse, read: ReadSummary) -> None:
        last: RunSummary | None = None
        silent = 0.0
        while not self._ending.is_set():
            summary = await read()
            if summary is None:
                await self._send(response, event("gone", "{}"))
                return
            silent += self._interval
            if last is None or _changed(last, summary):
                await self._send(response, event("progress", summary.model_dump_json()))
                last, silent = summary, 0.0
            elif silent >= self._heartbeat:
                await self._send(response, b": alive\n\n")
                silent = 0.0
            if summary.state is not None and summary.state.final and not summary.reading:
                await self._send(response, event("end", summary.model_dump_json()))
                return
            await self._pause()

    async def _send(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._write_timeout):
            await response.write(data)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._ending.wait()
        except TimeoutError:
            return


def event(name: str, data: str) -> bytes:
    """Encode one server-sent event."""
    return f"event: {name}\ndata: {data}\n\n".encode()


def _changed(last: RunSummary, now: RunSummary) -> bool:
    """Compare everything except the speed."""
    ignored = {"rate": None, "seconds_left": None}
    return last.model_copy(update=ignored) != now.model_copy(update=ignored)
