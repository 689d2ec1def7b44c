"""HTTP/1.1 to the service: a pool of persistent connections, and requests that can be aborted.

No proxy is ever used: the service is a neighbour, and many trainers' machines have ``http_proxy``
set for downloads. ``SSL_CERT_FILE`` names the authorities of a private certificate.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from urllib.parse import urlsplit

from plumbline_reward.retries import NoServiceError, RetryableError
from plumbline_reward.version import VERSION

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 30.0
"""Age up to which an idle connection is used again; the service closes it after 75 s."""
IDLE_CONNECTIONS = 64
LONGEST_BODY = 64 * 2**20
LONGEST_LINE = 2**20
_FAILURES = (OSError, http.client.HTTPException, ValueError)


class Connections:
    """Connections to one service, for any number of threads."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"User-Agent": f"plumbline-reward/{VERSION}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, http.client.HTTPConnection]] = deque()

    def exchange(self, method: str, path: str, accept: str, expires: float) -> "Exchange":
        """Prepare a request; nothing is sent before :meth:`Exchange.start`.

        ``expires`` on the monotonic clock is when the exchange fails, whatever it is doing.
        """
        headers = {**self._headers, "Accept": accept, "Content-Type": "application/json"}
        return Exchange(self, method, self._path + path, headers, expires)

    def take(self) -> http.client.HTTPConnection | None:
        """Take the idle connection that was used last, if one is fresh enough."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE_SECONDS:
                    return connection
                connection.close()
        return None

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection, whose answer was read to its end, for the next request."""
        with self._lock:
            self._idle.append((time.monotonic(), connection))
            if len(self._idle) > IDLE_CONNECTIONS:
                self._idle.popleft()[1].close()

    def open(self, timeout: float) -> http.client.HTTPConnection:
        """Open a connection.

        Raises:
            OSError: It could not be opened.
        """
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        connection.connect()
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):  # Linux; a machine that vanished is noticed after 40 s
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection


class Exchange:
    """One request and its answer, used as a context manager by one thread.

    Only :meth:`abort` may be called by another one.
    """

    status: int
    retry_after: str | None

    def __init__(
        self,
        connections: Connections,
        method: str,
        path: str,
        headers: dict[str, str],
        expires: float,
    ) -> None:
        self._connections = connections
        self._request = (method, path, headers)
        self._expires = expires
        self._lock = threading.Lock()
        self._aborted = False
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._finished = False

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            connection, self._connection, self._socket = self._connection, None, None
        if connection is None:
            return
        response = self._response
        if self._finished and not self._aborted and response and not response.will_close:
            self._connections.give_back(connection)
            return
        if response is not None:
            response.close()
        connection.close()

    def abort(self) -> None:
        """Make the thread that waits for this exchange fail now; the service sees the end."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # already closed by the service
                    # Not SSLSocket's: it would take the TLS state from the thread that reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def start(self, body: bytes | None = None) -> None:
        """Send the request and read the head of the answer.

        Raises:
            RetryableError: The connection failed, or the answer is no HTTP.
        """
        connection = self._connections.take()
        if connection is not None:
            try:
                return self._send(connection, body)
            except _FAILURES as error:
                # The service closed it while it was idle, perhaps as it was restarted: the
                # request had no effect, or one that is the same the second time.
                self._drop(connection)
                if isinstance(error, TimeoutError):
                    raise self._failure(error) from None
        try:
            connection = self._connections.open(min(self._left(), CONNECT_SECONDS))
        except _FAILURES as error:
            raise NoServiceError(str(self._failure(error))) from None
        try:
            self._send(connection, body)
        except _FAILURES as error:
            self._drop(connection)
            raise self._failure(error) from None

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            RetryableError: The connection broke, or the answer is no HTTP.
        """
        response, sock = self._response, self._socket
        assert response is not None and sock is not None, "start() comes first"
        try:
            while not self._aborted:
                sock.settimeout(self._left())
                data = response.read1(65536)
                if not data:
                    self._finished = response.isclosed()
                    return
                yield data
        except _FAILURES as error:
            raise self._failure(error) from None
        raise self._failure(ConnectionAbortedError("aborted"))

    def body(self) -> bytes:
        """Read the whole body.

        Raises:
            RetryableError: The connection broke, the answer is no HTTP, or too long.
        """
        data = bytearray()
        for chunk in self.chunks():
            data += chunk
            if len(data) > LONGEST_BODY:
                raise RetryableError(f"its answer is longer than {LONGEST_BODY >> 20} MiB")
        expected = self._response.headers.get("Content-Length") if self._response else None
        if expected is not None and expected.strip() != str(len(data)):
            raise RetryableError("the connection broke within an answer")
        return bytes(data)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive, without the empty ones.

        Raises:
            RetryableError: The connection broke, the answer is no HTTP, or a line too long.
        """
        rest = b""
        for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line.strip())
            if len(rest) > LONGEST_LINE:
                raise RetryableError(f"a line of its answer is longer than {LONGEST_LINE} bytes")
        if rest.strip():
            raise RetryableError("the stream was cut within a line")

    def _send(self, connection: http.client.HTTPConnection, body: bytes | None) -> None:
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("aborted")
            self._connection, self._socket = connection, connection.sock
        connection.sock.settimeout(self._left())
        method, path, headers = self._request
        connection.request(method, path, body, headers)
        connection.sock.settimeout(self._left())
        response = connection.getresponse()
        self._response = response
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After")

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._connection = self._socket = None
        connection.close()

    def _left(self) -> float:
        left = self._expires - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit has passed")
        return left

    def _failure(self, error: Exception) -> RetryableError:
        if isinstance(error, TimeoutError):
            return RetryableError("it does not answer in time")
        if isinstance(error, OSError) and error.strerror:
            return RetryableError(f"the connection failed: {error.strerror}")
        text = str(error) or type(error).__name__
        return RetryableError(f"the connection failed: {text}")
