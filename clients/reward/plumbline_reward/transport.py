"""One HTTP/1.1 request to the service.

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
from plumbline_reward.settings import Settings
from plumbline_reward.version import VERSION

CONNECT_SECONDS = 10.0
_FAILURES = (OSError, http.client.HTTPException, ValueError)
# Linux notices a machine that vanished after 40 s.
_KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))


class Reply:
    """The answer to a request. Reading it fails at ``expires`` on the monotonic clock."""

    def __init__(
        self, response: http.client.HTTPResponse, sock: socket.socket, expires: float
    ) -> None:
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After")
        self._response, self._socket, self._expires = response, sock, expires

    def body(self) -> bytes:
        """Read the whole body.

        Raises:
            RetryableError: The connection broke.
        """
        data = b"".join(self._chunks())
        if self._response.length:
            raise RetryableError("the connection broke within an answer")
        return data

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive, but no empty ones; raises as :meth:`body`."""
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line.strip())
        if rest.strip():
            yield rest

    def _chunks(self) -> Iterator[bytes]:
        while True:
            with _failures():
                self._socket.settimeout(_left(self._expires))
                data = self._response.read1(65536)
            if not data:
                return
            yield data


@contextlib.contextmanager
def exchange(
    settings: Settings, expires: float, method: str, path: str, accept: str, body: bytes | None
) -> Iterator[Reply]:
    """Send a request and yield the head of its answer.

    Args:
        settings: Name the service and its token.
        expires: Time on the monotonic clock at which the exchange fails, whatever it is doing.
        method, path, accept, body: Of the request; a body is JSON.

    Raises:
        RetryableError: The connection failed, or the answer is no HTTP.
    """
    parts = urlsplit(settings.url)
    host = parts.hostname or ""
    headers = {
        "User-Agent": f"plumbline-reward/{VERSION}",
        "Content-Type": "application/json",
        "Accept": accept,
        **({"Authorization": f"Bearer {settings.token}"} if settings.token else {}),
    }
    connection = (
        http.client.HTTPSConnection(host, parts.port, context=_tls())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port)
    )
    with contextlib.closing(connection):
        with _failures("; to start a service: plumb reward --embedded"):
            connection.timeout = min(_left(expires), CONNECT_SECONDS)
            connection.connect()
        with _failures():
            sock = connection.sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.settimeout(_left(expires))
            connection.request(method, parts.path + path, body, headers)
            response = connection.getresponse()
        with contextlib.closing(response):
            yield Reply(response, sock, expires)


def _left(expires: float) -> float:
    left = expires - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@lru_cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextlib.contextmanager
def _failures(advice: str = "") -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise RetryableError(f"it does not answer in time{advice}") from None
    except _FAILURES as error:
        reason = error.strerror if isinstance(error, OSError) else None
        text = reason or str(error) or type(error).__name__
        raise RetryableError(f"the connection failed: {text}{advice}") from None
