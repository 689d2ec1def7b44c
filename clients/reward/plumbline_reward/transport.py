"""One HTTP/1.1 request to the service, which another thread can abort.

No proxy is ever used: the service is a neighbour, and many trainers' machines have ``http_proxy``
set for downloads. ``SSL_CERT_FILE`` names the authorities of a private certificate.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from plumbline_reward.retries import RetryableError
from plumbline_reward.version import VERSION

CONNECT_SECONDS = 10.0
LONGEST_BODY = 64 * 2**20
LONGEST_LINE = 2**20
_FAILURES = (OSError, http.client.HTTPException, ValueError)


class Exchange:
    """One request, its connection and its answer. A context manager, for one thread.

    Only :meth:`abort` may be called by another one.

    Args:
        url: Address of the service.
        token: Its bearer token.
        method: HTTP method.
        path: Path below the address.
        accept: Media type of the answer.
        expires: Time on the monotonic clock at which the exchange fails, whatever it is doing.
    """

    status: int
    retry_after: str | None

    def __init__(
        self, url: str, token: str | None, method: str, path: str, accept: str, expires: float
    ) -> None:
        parts = urlsplit(url)
        self._connection = _connection(parts.scheme, parts.hostname or "", parts.port)
        self._method, self._path = method, parts.path + path
        self._headers = {
            "User-Agent": f"plumbline-reward/{VERSION}",
            "Accept": accept,
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._expires = expires
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._aborted = False

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._socket = None
        if self._response is not None:
            self._response.close()
        self._connection.close()

    def abort(self) -> None:
        """Make the thread that waits for this exchange fail; the service sees the end."""
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
        try:
            self._connection.timeout = min(self._left(), CONNECT_SECONDS)
            self._connection.connect()
        except _FAILURES as error:
            advice = "to start a service: plumb reward --embedded"
            raise RetryableError(f"{_failure(error)}; {advice}") from None
        try:
            self._take(self._connection.sock)
            self._connection.request(self._method, self._path, body, self._headers)
            self._response = self._connection.getresponse()
        except _FAILURES as error:
            raise _failure(error) from None
        self.status = self._response.status
        self.retry_after = self._response.headers.get("Retry-After")
        self._length = self._response.headers.get("Content-Length")

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            RetryableError: The connection broke, or the answer is no HTTP.
        """
        sock, response = self._socket, self._response
        assert sock is not None and response is not None, "start() comes first"
        try:
            while not self._aborted:
                sock.settimeout(self._left())
                data = response.read1(65536)
                if not data:
                    return
                yield data
        except _FAILURES as error:
            raise _failure(error) from None
        raise RetryableError("aborted")

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
        if self._length is not None and self._length.strip() != str(len(data)):
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

    def _take(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):  # Linux; a machine that vanished is noticed after 40 s
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.settimeout(self._left())
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("aborted")
            self._socket = sock

    def _left(self) -> float:
        left = self._expires - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit has passed")
        return left


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, context=_tls())
    return http.client.HTTPConnection(host, port)


@lru_cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _failure(error: Exception) -> RetryableError:
    if isinstance(error, TimeoutError):
        return RetryableError("it does not answer in time")
    reason = error.strerror if isinstance(error, OSError) else None
    return RetryableError(f"the connection failed: {reason or str(error) or type(error).__name__}")
