"""One HTTP/1.1 request to the service, which another thread can abort.

No proxy is ever used: the service is a neighbour, and many trainers' machines have ``http_proxy``
set for downloads. ``SSL_CERT_FILE`` names the authorities of a private certificate.
"""

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from plumbline_reward.retries import RetryableError
from plumbline_reward.version import VERSION

CONNECT_SECONDS = 10.0
_FAILURES = (OSError, http.client.HTTPException, ValueError)
# Linux notices a machine that vanished after 40 s.
_KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))


class Exchange:
    """One request, its connection and its answer. A context manager, for one thread.

    Only :meth:`abort` may be called by another one.

    Args:
        url: Address of the service.
        token: Its bearer token.
        expires: Time on the monotonic clock at which the exchange fails, whatever it is doing.

    Attributes:
        response: The head of the answer, after :meth:`send`.
    """

    response: http.client.HTTPResponse

    def __init__(self, url: str, token: str | None, expires: float) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._connection = (
            http.client.HTTPSConnection(host, parts.port, context=_tls())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port)
        )
        self._prefix = parts.path
        self._headers = {
            "User-Agent": f"plumbline-reward/{VERSION}",
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._expires = expires
        self._socket: socket.socket | None = None
        self._aborted = False

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "response"):
            self.response.close()
        self._connection.close()

    def abort(self) -> None:
        """Make the thread that waits for this exchange fail; the service sees the end."""
        self._aborted = True  # before the socket is read: send() does it the other way round
        if self._socket is not None:
            with contextlib.suppress(OSError):  # already closed
                # Not SSLSocket's: it would take the TLS state from the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def send(self, method: str, path: str, accept: str, body: bytes | None = None) -> None:
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
        with _failures():
            self._socket = sock = self._connection.sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.settimeout(self._left())
            headers = {**self._headers, "Accept": accept}
            self._connection.request(method, self._prefix + path, body, headers)
            self.response = self._connection.getresponse()

    def body(self) -> bytes:
        """Read the whole body; raises as :meth:`send`."""
        data = b"".join(self._chunks())
        if self.response.length:
            raise RetryableError("the connection broke within an answer")
        return data

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive, but no empty ones; raises as :meth:`send`."""
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line.strip())
        if rest.strip():
            yield rest

    def _chunks(self) -> Iterator[bytes]:
        assert self._socket is not None, "send() comes first"
        while True:
            with _failures():
                self._socket.settimeout(self._left())
                data = self.response.read1(65536)
            if not data:
                return
            yield data

    def _left(self) -> float:
        left = self._expires - time.monotonic()
        if self._aborted or left <= 0:
            raise TimeoutError("the time limit has passed")
        return left


@lru_cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise _failure(error) from None


def _failure(error: Exception) -> RetryableError:
    if isinstance(error, TimeoutError):
        return RetryableError("it does not answer in time")
    reason = error.strerror if isinstance(error, OSError) else None
    return RetryableError(f"the connection failed: {reason or str(error) or type(error).__name__}")
