"""Bytes that are no request, or an absurd one, and clients that are slow or leave.

Each gets a 4xx or a closed connection within a deadline, and the server goes on for others.
"""

import re
import socket
import time
import zlib
from contextlib import ExitStack, suppress

import pytest

from tests.fuzz.servers import Server

# The servers' own deadlines are shorter (DEADLINES); the rest is for a busy machine.
_SECONDS = 20.0
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
    "endless length": _POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "two lengths": _POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}}",
    "length and chunks": _POST
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk of letters": _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "negative chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "endless chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 5000 + b"\r\n",
    "chunk without an end": _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    "chunk extension": _POST + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"a" * 100_000,
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


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_request(server: Server, kind: str) -> None:
    found = statuses(send(server, REFUSED[kind]))
    assert all(400 <= status < 500 for status in found), found


def test_a_request_without_a_name_for_the_server(server: Server) -> None:
    """An empty ``Host`` is what HTTP prescribes where there is none."""
    found = statuses(send(server, b"GET /healthz HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"))
    assert all(status < 500 for status in found)


def test_many_requests_in_one_piece(server: Server) -> None:
    """Pipelined: each is answered in turn, or the connection is closed."""
    with server.connect() as connection:
        connection.sendall((_GET + b"\r\n") * 50 + _GET + b"Connection: close\r\n\r\n")
        data, end = b"", time.monotonic() + _SECONDS
        connection.settimeout(_SECONDS)
        while time.monotonic() < end and (part := connection.recv(65536)):
            data += part
    assert set(statuses(data)) == {200}


def test_a_second_request_hidden_in_the_first(server: Server) -> None:
    """What a proxy would take for a body is not served as a request."""
    hidden = _GET + b"\r\n"
    head = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % (5 + len(hidden))
    found = statuses(send(server, _POST + head + b"0\r\n\r\n" + hidden))
    assert 200 not in found


def test_clients_that_send_no_more(server: Server) -> None:
    """Some close their half of the connection, the others only wait."""
    head = _POST.replace(b"{path}", _PATHS[server.name]) + b"Content-Length: 1000\r\n\r\n{"
    parts = [b"", b"GET /heal", _GET, _GET + b"X: ", head]
    with ExitStack() as stack:
        connections = []
        for part in parts * 2:
            connections.append(stack.enter_context(server.connect()))
            connections[-1].sendall(part)
        for connection in connections[: len(parts)]:
            connection.shutdown(socket.SHUT_WR)
        found = [statuses(received(connection)) for connection in connections]
    assert all(400 <= status < 500 for answers in found for status in answers), found


def test_slow_bytes(server: Server) -> None:
    """One byte at a time does not keep a connection open."""
    with server.connect() as connection:
        began = time.monotonic()
        connection.settimeout(0.2)
        closed = False
        while not closed and time.monotonic() - began < _SECONDS:
            try:
                connection.sendall(b"a")
                data = connection.recv(1024)
                closed = not data or bool(statuses(data))
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
        assert closed


def test_connections_that_are_left(server: Server) -> None:
    for _ in range(200):
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHo")


def test_a_small_body_that_would_become_large(server: Server) -> None:
    packed = zlib.compress(b" " * 64 * 2**20)
    head = b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed)
    found = statuses(send(server, _POST + head + packed))
    assert all(400 <= status < 500 for status in found), found
