"""Bytes that are no request, or an absurd one.

Each gets a 4xx or a closed connection, and the server goes on for others.
"""

import re
import socket
import time
import zlib
from contextlib import suppress
from itertools import product

from tests.fuzz.servers import Server, failures

_SECONDS = 60.0
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_POST = b"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
_PATHS = {
    "sandbox": b"/run_code",
    "replay": b"/v1/chat/completions",
    "router": b"/v1/chat/completions",
    "aggregator": b"/api/runs",
    "judge": b"/healthz",
    "reward": b"/v1/score",
}
_HELLO = b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03" + bytes(32) + b"\x20" + bytes(64)
# Each is sent at once, and the sending half is left open.
REFUSED = {
    "tls": _HELLO,
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "nulls": bytes(4096) + b"\r\n\r\n",
    "noise": bytes(range(256)) * 16 + b"\r\n\r\n",
    "one word": b"GET\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "absurd version": b"GET /healthz HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    "version of letters": b"GET /healthz HTTP/x.y\r\nHost: 127.0.0.1\r\n\r\n",
    "method of symbols": b"G(E)T /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "null in the path": b"GET /heal\x00thz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "blank in the path": b"GET /heal thz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "long header": _GET + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": _GET + b"".join(b"X%d: 1\r\n" % n for n in range(40_000)) + b"\r\n",
    "header without a colon": _GET + b"nonsense\r\n\r\n",
    "header without a name": _GET + b": value\r\n\r\n",
    "null in a header": _GET + b"X: a\x00b\r\n\r\n",
    "blank before the colon": _GET + b"Content-Length : 0\r\n\r\n",
    "folded header": _GET + b"X: a\r\n b\r\n\r\n",
    "bare carriage return": _GET + b"X: a\rY: b\r\n\r\n",
    "negative length": _POST + b"Content-Length: -1\r\n\r\n",
    "length of letters": _POST + b"Content-Length: ten\r\n\r\n",
    "length in digits of another script": _POST + "Content-Length: \u0663\r\n\r\n".encode(),
    "length with a sign": _POST + b"Content-Length: +2\r\n\r\n{}",
    "two lengths": _POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}}",
    "length and chunks": _POST
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk of letters": _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "negative chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "endless chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 5000 + b"\r\n",
    "chunk without an end": _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    "unknown transfer": _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip junk": _POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
    "deflate junk": _POST + b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\njunk",
    "br junk": _POST + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\njunk",
    "zstd junk": _POST + b"Content-Encoding: zstd\r\nContent-Length: 4\r\n\r\njunk",
    "no host": b"GET /metrics HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    "host elsewhere": b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "host of symbols": b'GET /metrics HTTP/1.1\r\nHost: a b"<>[::\r\n\r\n',
    "host with a user": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n",
    "host with an absurd port": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:99999999\r\n\r\n",
    "long host": b"GET /metrics HTTP/1.1\r\nHost: " + b"a" * 7000 + b"\r\n\r\n",
    "target elsewhere": b"GET http://evil.example/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "absurd target": b"GET http://[::/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    "upgrade": b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
}


def received(connection: socket.socket, seconds: float = _SECONDS) -> bytes:
    """What comes until the server closes the connection, or has answered with an error."""
    data, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        connection.settimeout(max(0.01, end - time.monotonic()))
        try:
            part = connection.recv(65536)
        except ConnectionError:
            return data
        except TimeoutError:
            break
        if not part:
            return data
        data += part
        if (found := _STATUS.match(data)) and b"\r\n\r\n" in data and found[1] != b"100":
            return data
    raise AssertionError(f"no answer, and not closed, in {seconds:g} s; so far {data[:200]!r}")


def statuses(data: bytes) -> list[int]:
    return [int(found) for found in _STATUS.findall(data)]


def send(server: Server, data: bytes) -> bytes:
    path = _PATHS[server.name]
    with server.connect() as connection:
        with suppress(ConnectionError):  # refused before all was sent
            connection.sendall(data.replace(b"{path}", path))
        return received(connection)


def test_bytes_that_are_no_request(servers: list[Server]) -> None:
    def check(server: Server, kind: str) -> str | None:
        return only_refusals(statuses(send(server, REFUSED[kind])))

    assert failures(check, product(servers, REFUSED)) == {}


def test_a_request_without_a_name_for_the_server(servers: list[Server]) -> None:
    """An empty ``Host`` is what HTTP prescribes where there is none."""

    def check(server: Server) -> str | None:
        data = send(server, b"GET /healthz HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n")
        answers = statuses(data)
        return None if all(status < 500 for status in answers) else f"{answers}"

    assert failures(check, product(servers)) == {}


def test_other_methods_are_refused(servers: list[Server]) -> None:
    def check(server: Server, method: str) -> str | None:
        with server.connect() as connection:
            connection.sendall(f"{method} /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            line = connection.recv(4096).split(b"\r\n")[0]
        return None if line.split()[1].startswith(b"4") else f"{line!r}"

    methods = ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "BREW"]
    assert failures(check, product(servers, methods)) == {}


def test_many_requests_in_one_piece(servers: list[Server]) -> None:
    """Pipelined: each is answered in turn, or the connection is closed."""

    def check(server: Server) -> str | None:
        with server.connect(_SECONDS) as connection:
            connection.sendall((_GET + b"\r\n") * 50 + _GET + b"Connection: close\r\n\r\n")
            data = b""
            while part := connection.recv(65536):
                data += part
        answers = set(statuses(data))
        return None if answers == {200} else f"{answers}"

    assert failures(check, product(servers)) == {}


def test_a_second_request_hidden_in_the_first(servers: list[Server]) -> None:
    """A part that a proxy would take for a body is not served as a request."""

    def check(server: Server) -> str | None:
        hidden = _GET + b"\r\n"
        head = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % (5 + len(hidden))
        answers = statuses(send(server, _POST + head + b"0\r\n\r\n" + hidden))
        return f"{answers}" if 200 in answers else None

    assert failures(check, product(servers)) == {}


def test_connections_that_are_left(servers: list[Server]) -> None:
    for server in servers:
        for _ in range(200):
            with server.connect() as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHo")


def test_a_small_body_that_would_become_large(servers: list[Server]) -> None:
    packed = zlib.compress(b" " * 64 * 2**20)
    head = b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed)

    def check(server: Server) -> str | None:
        return only_refusals(statuses(send(server, _POST + head + packed)))

    assert failures(check, product(servers)) == {}


def only_refusals(answers: list[int]) -> str | None:
    return None if all(400 <= status < 500 for status in answers) else f"{answers}"
