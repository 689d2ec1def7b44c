"""Connections of an HTTP service: deadlines for slow clients, their number, malformed requests.

aiohttp has one deadline, for a client that keeps a connection open between requests. This module
adds those for a header, for a body and for a client that does not read its response; a bound on
the connections of a service; and short answers to bytes that are no request.
"""

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestPayloadError
from yarl import URL

from shared.service.access import OPEN_PATHS, ErrorFormat
from shared.service.logs import get_logger

log = get_logger(__name__)

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 2\r\n"
    b"Content-Length: 0\r\n\r\n"
)
# Probes have to be answered when a service is full, and so has whoever looks for the reason.
_SPARE_PATHS = OPEN_PATHS | {"/metrics"}
# aiohttp's own value has its version and Python's.
SERVER = {"Server": "plumbline"}
_CONTINUE = "100-continue"
_MALFORMED = (HttpProcessingError, RequestPayloadError)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on the connections of a service; times are seconds.

    Attributes:
        connections: Open connections. One more replaces the connection that has waited longest for
            a request; where none waits, only health checks and metrics are answered.
        spare: Connections beyond ``connections`` for these; one more is closed at once.
        header: Time for the header of a request, from the first byte or the connection on.
        body: Time for a body.
        body_grace: Time after which a body must have arrived at ``body_rate`` on average, and in
            which some of it must arrive: a client that is gone holds what it sent no longer.
        body_rate: Bytes per second.
        keepalive: Time between two requests. Longer than that of clients and usual proxies, which
            otherwise would send a request while the connection is being closed.
        reading: Time in which a client must read something of a response.
        unsent: Bytes of all responses that clients have yet to read. Beyond it the connections
            whose clients have kept a response waiting longest are closed.
        linger: Time to read the rest of a body whose request was answered already.
        interval: Time between two checks.
    """

    connections: int = 1024
    spare: int = 32
    header: float = 15.0
    body: float = 300.0
    body_grace: float = 20.0
    body_rate: float = 16 * 1024
    keepalive: float = 75.0
    reading: float = 120.0
    unsent: int = 256 * 1024 * 1024
    linger: float = 5.0
    interval: float = 1.0


class Connections:
    """The open connections of a service.

    Deadlines are measured in time that the event loop was there to receive something: while it is
    blocked, its clients are not late.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # for a request, the longest first
        self._full = self._shedding = False

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "Connection") -> bool:
        """Count a new connection, in the place of another one where necessary."""
        if len(self._open) >= self.limits.connections:
            self._report()
            if idle := next(iter(self._waiting), None):
                self.forget(idle)
                idle.end()
            elif len(self._open) >= self.limits.connections + self.limits.spare:
                return False
            connection.spare = len(self._open) >= self.limits.connections
        elif len(self._open) < self.limits.connections * 3 // 4:
            self._full = False
        self._open.add(connection)
        return True

    def _report(self) -> None:
        """Log one line when the service becomes full, until it is so no more."""
        if not self._full:
            self._full = True
            log.warning(
                "too many connections",
                limit=self.limits.connections,
                advice="idle ones are closed; set PLUMBLINE_MAX_CONNECTIONS if the clients are "
                "legitimate",
            )

    def wait(self, connection: "Connection") -> None:
        """Note that a connection waits for a request, unless it has been closed."""
        if connection in self._open:
            self._waiting[connection] = None

    def work(self, connection: "Connection") -> None:
        """Note that a connection has a request."""
        self._waiting.pop(connection, None)

    def forget(self, connection: "Connection") -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    async def watch(self) -> None:
        """Enforce the deadlines, until cancelled."""
        interval = self.limits.interval
        while True:
            await asyncio.sleep(interval)
            self.now += interval
            if self._shedding:
                # The errors of their handlers keep what they were sending.
                gc.collect()
            for connection in list(self._open):
                connection.check()
            self._shedding = self._shed()

    def _shed(self) -> bool:
        """Close connections that hold too much memory together; whether there were any."""
        unsent = sum(connection.unsent for connection in self._open)
        if unsent <= self.limits.unsent:
            return False
        for connection in sorted(self._open, key=lambda connection: connection.stalled_since):
            size = connection.unsent
            log.info("client does not read its response, and memory is short", bytes=size)
            connection.end()
            unsent -= size
            if unsent <= self.limits.unsent:
                break
        return True


class Connection(web.RequestHandler):
    """A connection of a service.

    Attributes:
        spare: Whether it is one beyond the limit, for health checks only.
        unusable: Its last request with a target that nothing can be made of.
    """

    __slots__ = (
        "_all",
        "_body",
        "_body_arrived",
        "_body_moved",
        "_body_since",
        "_closing",
        "_header_since",
        "_held",
        "_idle",
        "_link",
        "_stalled",
        "spare",
        "unusable",
    )

    def __init__(
        self, connections: Connections, server: web.Server, loop: asyncio.AbstractEventLoop
    ) -> None:
        limits = connections.limits
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None switches it off
            auto_decompress=False,
            keepalive_timeout=limits.keepalive,
            lingering_time=limits.linger,
        )
        self.spare = False
        self.unusable: web.BaseRequest | None = None
        self._all = connections
        self._link: asyncio.Transport | None = None
        self._idle = False
        self._header_since: float | None = None
        self._body: StreamReader | None = None
        self._body_since = self._body_moved = 0.0
        self._body_arrived = 0
        self._held = False
        self._stalled: float | None = None
        self._closing: float | None = None

    # Life of a connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        link = self._link = cast(asyncio.Transport, transport)
        if not self._all.admit(self):
            link.write(_FULL)
            link.close()
            return
        self._wait()
        # A new connection is there for a request; it may be idle only after one.
        self._header_since = self._all.now
        super().connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self._all.forget(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._idle and self._header_since is None:
            self._header_since = self._all.now
        super().data_received(data)
        self._end_broken_body()

    def pause_writing(self) -> None:
        self._stalled = self._all.now
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    def pause_reading(self) -> None:
        self._held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        self._held = False
        super().resume_reading(resume_parser)

    @property
    def unsent(self) -> int:
        """Bytes of responses that the client has yet to read."""
        return self._link.get_write_buffer_size() if self._link is not None else 0

    @property
    def stalled_since(self) -> float:
        """Time since which a response waits for the client; infinity if none does."""
        return math.inf if self._stalled is None else self._stalled

    def end(self) -> None:
        """Close the connection at once."""
        assert self._link is not None
        self._link.abort()

    def _wait(self) -> None:
        self._idle, self._header_since, self._body = True, None, None
        self._all.wait(self)

    # Life of a request

    def begin(self, request: web.BaseRequest) -> None:
        """Start the deadline of the body; that of the header is met."""
        self._all.work(self)
        self._idle, self._header_since = False, None
        if not request.content.is_eof():
            self._body, self._body_arrived = request.content, 0
            self._body_since = self._body_moved = self._all.now
            self._end_broken_body()

    def _end_broken_body(self) -> None:
        """Let the handler know that the rest of a body is malformed.

        aiohttp queues the error as the next request of the connection, and the handler would wait
        for more of the body for ever.
        """
        body = self._body
        if body is not None and self._messages and not body.is_eof() and body.exception() is None:
            body.set_exception(RequestPayloadError("malformed body"))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        broken = request.content.exception() is not None
        if broken or self.spare:
            resp.force_close()
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, web.Response):
                resp.body = None  # aiohttp keeps the response until the next request
            if broken:
                # aiohttp reads the rest of a body, and would report the same error once more.
                request.content.feed_eof()
            self._wait()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, _MALFORMED):
            return super().handle_error(request, status, exc, message)
        log.debug("malformed request", peer=request.remote, error=type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("the response was sent before the body was found to be malformed")
        body = {"error": "the request is malformed"}
        malformed = web.json_response(body, status=400, headers=SERVER)
        malformed.force_close()
        return malformed

    # Deadlines

    def check(self) -> None:
        """Close the connection if its client is late."""
        now, limits, link = self._all.now, self._all.limits, self._link
        assert link is not None
        if link.is_closing():
            self._closing = now if self._closing is None else self._closing
            if now - self._closing > limits.reading:
                link.abort()
        elif self._stalled is not None and now - self._stalled > limits.reading:
            log.info("client does not read its response", seconds=limits.reading)
            link.abort()
        elif self._header_since is not None and now - self._header_since > limits.header:
            self.end()
        elif self._body is not None:
            self._check_body(self._body)

    def _check_body(self, body: StreamReader) -> None:
        limits = self._all.limits
        if body.is_eof():
            self._body = None
            return
        if self._held:  # it is the service that is late
            self._body_since += limits.interval
            self._body_moved += limits.interval
            return
        if body.total_bytes > self._body_arrived:
            self._body_arrived, self._body_moved = body.total_bytes, self._all.now
        stalled = self._all.now - self._body_moved > limits.body_grace
        passed = self._all.now - self._body_since
        slow = body.total_bytes < (passed - limits.body_grace) * limits.body_rate
        if (slow or stalled or passed > limits.body) and body.exception() is None:
            text = '{"error": "the body did not arrive in time"}'
            body.set_exception(web.HTTPRequestTimeout(text=text, content_type="application/json"))


RequestFactory = Callable[
    [
        RawRequestMessage,
        StreamReader,
        web.RequestHandler,
        AbstractStreamWriter,
        "asyncio.Task[None]",
    ],
    web.BaseRequest,
]


def requests_of(server: web.Server) -> RequestFactory:
    """Wrap a server's making of requests, which fails for some targets with a host.

    aiohttp would answer nothing at all, and report the error when the connection is forgotten.
    """
    inner = server.request_factory

    def make(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        try:
            return inner(message, payload, protocol, writer, task)
        except ValueError:  # such as "xn--a", which stands for no name
            request = inner(message._replace(url=URL("/")), payload, protocol, writer, task)
            assert isinstance(protocol, Connection)
            protocol.unusable = request
            return request

    return make


Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def handler_of(server: web.Server, errors: ErrorFormat) -> Handle:
    """Wrap a server's handler so that its connections know about their requests.

    Responses that it gives itself have the format ``errors``.
    """
    inner = server.request_handler
    retry = {"Retry-After": "2", **SERVER}

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin(request)
        if connection.unusable is request:
            raise BadHttpMessage("the target is malformed")
        if connection.spare and request.path not in _SPARE_PATHS:
            return errors(503, "too many connections; try again later", retry)
        # aiohttp would look at this header before the application does, and quote it.
        if request.headers.get("Expect", _CONTINUE).lower() != _CONTINUE:
            return errors(417, "the only supported Expect is 100-continue", SERVER)
        return await inner(request)

    return handle
