"""Connections of a service: slow clients, their number, malformed requests."""

import asyncio
import json
import logging
import socket
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from shared.service.connections import ConnectionLimits
from shared.service.health import HealthServer, Readiness
from tests.shared.http_clients import JSON, QUICK, ask, connection, post, request, server, status_of

HEALTH = request("Host: localhost")


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno > logging.INFO or record.exc_info]


# Slow clients


@pytest.mark.parametrize("sent", [b"", b"G", HEALTH[:-2]])
async def test_a_header_that_does_not_end(sent: bytes) -> None:
    async with server(header=0.2) as port, connection(port) as raw:
        raw.send(sent)
        assert await raw.closed()


async def test_a_header_byte_by_byte() -> None:
    async with server(header=0.5) as port, connection(port) as raw:

        async def trickle() -> None:
            while True:
                raw.send(b"X")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ")
        assert await raw.closed()
        trickling.cancel()


async def test_a_connection_that_is_kept_alive() -> None:
    async with server(header=0.2, keepalive=1.0) as port, connection(port) as raw:
        raw.send(HEALTH)
        assert await raw.status() == 200
        await asyncio.sleep(0.4)  # longer than a header may take
        raw.send(HEALTH)
        assert await raw.status() == 200
        raw.send(b"GET /heal")
        assert await raw.closed()


async def test_a_body_that_stops() -> None:
    async with server(body=0.3) as port, connection(port) as raw:
        raw.send(post(JSON, body=b"x" * 1000)[:-1])
        head, body = await raw.response()
        assert head.split()[1] == "408"
        assert json.loads(body) == {"error": "the body did not arrive in time"}
        assert await raw.closed()


async def test_a_body_that_is_too_slow() -> None:
    limits = {"body_grace": 0.3, "body_rate": 1e6}
    async with server(**limits) as port, connection(port) as raw:
        raw.send(post(JSON, body=b"x" * 1_000_000)[:-900_000])
        assert await raw.status() == 408


async def test_a_body_of_which_nothing_more_comes() -> None:
    """What has come so far keeps no memory, however fast it came."""
    limits = {"body_grace": 0.3, "body_rate": 1000}
    async with server(**limits) as port, connection(port) as raw:
        raw.send(post(JSON, body=b"x" * 100_000)[:-10_000])
        async with asyncio.timeout(5):
            assert await raw.status() == 408


async def test_a_body_in_pieces() -> None:
    limits = {"body_grace": 0.5, "body_rate": 10}
    async with server(**limits) as port, connection(port) as raw:
        whole = post(JSON, body=b"x" * 100_000)
        for start in range(0, len(whole), 15_000):
            raw.send(whole[start : start + 15_000])
            await asyncio.sleep(0.2)
        assert await raw.status() == 200


async def test_a_body_in_time_and_one_that_the_service_reads_late() -> None:
    """A client that sends while nobody reads is not late."""

    def late(app: web.Application) -> None:
        async def answer(asked: web.Request) -> web.Response:
            await asyncio.sleep(0.6)
            return web.json_response({"bytes": len(await asked.read())})

        app.router.add_post("/late", answer)

    body = b"x" * (1 << 22)
    limits = {"body_grace": 0.2, "body_rate": 1e6, "body": 0.5}
    async with server(change=late, **limits) as port:
        assert await status_of(port, post(JSON, body=b"x" * 1000)) == 200
        _, answer = await ask(port, post(JSON, body=body, target="/late"))
        assert json.loads(answer) == {"bytes": len(body)}


async def test_a_client_that_does_not_read() -> None:
    ended = asyncio.Event()

    def large(app: web.Application) -> None:
        async def answer(asked: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(asked)
            try:
                while True:
                    await response.write(b"x" * 100_000)
            finally:
                ended.set()

        app.router.add_get("/large", answer)

    async with server(change=large, reading=0.3) as port, connection(port) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.send(request("Host: localhost", target="/large"))
        async with asyncio.timeout(20):
            await ended.wait()


async def test_clients_that_read_nothing_share_a_limit_of_memory() -> None:
    """Of two responses that are too large together the first one is given up."""
    size = 16 * 2**20

    def large(app: web.Application) -> None:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(body=b"x" * size)

        app.router.add_get("/large", answer)

    async with (
        server(change=large, unsent=size) as port,
        connection(port) as first,
        connection(port) as second,
    ):
        for raw in (first, second):
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            raw.send(request("Host: localhost", target="/large"))
            await asyncio.sleep(0.3)
        for raw in (first, second):
            raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await first.response()
        assert len((await second.response())[1]) == size


async def test_a_response_that_was_sent_is_not_kept() -> None:
    sent: list[weakref.ref[web.Response]] = []

    def known(app: web.Application) -> None:
        async def answer(_request: web.Request) -> web.Response:
            response = web.Response(body=b"x" * 100_000)
            sent.append(weakref.ref(response))
            return response

        app.router.add_get("/known", answer)

    async with server(change=known) as port, connection(port) as raw:
        raw.send(request("Host: localhost", target="/known"))
        assert len((await raw.response())[1]) == 100_000
        kept = sent[0]()
        assert kept is None or kept.body is None


async def test_a_long_answer_is_none_of_these() -> None:
    def quiet(app: web.Application) -> None:
        async def answer(_request: web.Request) -> web.Response:
            await asyncio.sleep(0.8)
            return web.Response(text="done")

        app.router.add_post("/quiet", answer)

    limits = {"header": 0.1, "body": 0.1, "body_grace": 0.1, "reading": 0.1, "keepalive": 0.1}
    async with server(change=quiet, **limits) as port:
        assert await ask(port, post(JSON, target="/quiet")) != ("", b"")


# Their number


async def test_idle_connections_make_way() -> None:
    """Those that send nothing do not keep anybody out; there is one line for the episode."""
    with capture_logs() as lines:
        await crowd()
    assert [line["event"] for line in lines] == ["too many connections"]


async def crowd() -> None:
    async with server(connections=20) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _ in range(30):
            assert await status_of(port, HEALTH) == 200
        for _, writer in idle:
            writer.close()


async def test_health_checks_of_a_full_service() -> None:
    release = asyncio.Event()

    def slow(app: web.Application) -> None:
        async def answer(_request: web.Request) -> web.Response:
            await release.wait()
            return web.Response()

        app.router.add_post("/slow", answer)

    async with server(change=slow, connections=8, spare=4) as port:
        busy = [asyncio.create_task(status_of(port, post(JSON, target="/slow"))) for _ in range(8)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            while await status_of(port, post(JSON)) != 503:
                await asyncio.sleep(0.01)
        assert await status_of(port, HEALTH) == 200
        assert await status_of(port, request("Host: localhost", target="/metrics")) == 200
        held = [asyncio.create_task(status_of(port, post(JSON, target="/slow"))) for _ in range(50)]
        assert set(await asyncio.gather(*held)) <= {503, 0}
        release.set()
        assert await asyncio.gather(*busy) == [200] * 8
        async with asyncio.timeout(10):
            while await status_of(port, post(JSON)) != 200:
                await asyncio.sleep(0.01)


def test_500_clients_at_once_and_metrics_beside_slow_ones() -> None:
    """A judge's server in a thread: the backlog takes all, no thread waits for a slow one."""
    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)

    def scrape(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(request("Host: localhost", "Connection: close", target="/metrics"))
            return b"".join(iter(lambda: client.recv(65536), b""))

    readiness = Readiness(lambda: None)
    with HealthServer("127.0.0.1", 0, readiness, registry, limits=ConnectionLimits()) as health:
        slow = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(300)]
        for client in slow:
            client.send(b"GET /metrics HTTP/1.1\r\n")
        with ThreadPoolExecutor(500) as pool:
            answers = list(pool.map(scrape, [health.port] * 500))
        assert all(
            answer.startswith(b"HTTP/1.1 200") and b"jobs 3.0" in answer for answer in answers
        )
        for client in slow:
            client.close()


def test_a_health_server_has_the_rules_and_deadlines() -> None:
    limits = ConnectionLimits(interval=0.02, header=0.3)

    def told(*headers: str, target: str = "/healthz") -> bytes:
        with socket.create_connection(("127.0.0.1", health.port), timeout=10) as client:
            client.sendall(request("Connection: close", *headers, target=target))
            return b"".join(iter(lambda: client.recv(65536), b""))

    with HealthServer("127.0.0.1", 0, Readiness(), limits=limits) as health:
        assert told("Host: localhost").startswith(b"HTTP/1.1 200")
        assert told("Host: evil.example").startswith(b"HTTP/1.1 421")
        assert told("Host: localhost", target="/x").startswith(b"HTTP/1.1 404")
        assert told("Host: localhost\x00").startswith(b"HTTP/1.0 400")
        assert b"ython" not in told("Host: localhost")
        with socket.create_connection(("127.0.0.1", health.port), timeout=10) as client:
            client.send(b"GET")
            assert client.recv(1) == b""


# Malformed requests

CHUNKED = post(JSON, "Transfer-Encoding: chunked", body=b"").replace(b"Content-Length: 0\r\n", b"")
MALFORMED = {
    "words": b"GARBAGE\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method": b"G\x00T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no host": request(),
    "a version": request("Host: localhost", version="3.7"),
    "a long target": request("Host: localhost", target="/" + "a" * 20_000),
    "a long name": request("Host: localhost", "A" * 20_000 + ": b"),
    "a long value": request("Host: localhost", "A: " + "b" * 20_000),
    "many headers": request("Host: localhost", *(f"A{i}: b" for i in range(500))),
    "a folded line": request("Host: localhost", " folded"),
    "a blank in a name": request("Host : localhost"),
    "a zero byte": request("Host: localhost", "A: \x00"),
    "a target": request("Host: localhost", target="http://[::1/"),
    "a name in a target": request("Host: localhost", target="http://xn--a/healthz"),
    "a port": request("Host: localhost", target="http://localhost:999999/"),
    "a scheme": request("Host: localhost", target="mailto:x"),
    "bytes in a target": request("Host: localhost", target="/\xff\xfe"),
    "a length": post(JSON, "Content-Length: x"),
    "a negative length": request("Host: localhost", "Content-Length: -1"),
    "a huge length": request("Host: localhost", f"Content-Length: {'9' * 30}"),
    "two lengths": post(JSON, "Content-Length: 3"),
    "two types": post(JSON, "Content-Type: text/plain"),
    "a length and chunks": post(JSON, "Transfer-Encoding: chunked"),
    "a chunk's size": CHUNKED + b"ZZ\r\n",
    "a huge chunk": CHUNKED + b"F" * 40 + b"\r\n",
    "a chunk's end": CHUNKED + b"5\r\nabcdeXX",
    "a trailer": CHUNKED + b"0\r\nA\x00: b\r\n\r\n",
}


@pytest.mark.parametrize("cut", [False, True])
async def test_malformed_requests(cut: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One short answer and no line that anybody sees, in one packet or in two."""
    caplog.set_level(logging.DEBUG)
    async with server() as port:
        for name, data in MALFORMED.items():
            at = data.find(b"\r\n\r\n") + 4 if data.startswith(CHUNKED) else len(data) // 2
            with capture_logs() as lines:
                await check_refused(name, port, data, at if cut else len(data))
            logged = [(line["event"], line["log_level"]) for line in lines]
            assert logged == [("malformed request", "debug")], name
            assert not tracebacks(caplog), name


async def check_refused(name: str, port: int, data: bytes, at: int) -> None:
    async with connection(port) as raw:
        raw.send(data[:at])
        if at < len(data):
            await asyncio.sleep(0.05)
            raw.send(data[at:])
        head, body = await raw.response()
        assert head.split()[1] == "400", name
        assert json.loads(body) == {"error": "the request is malformed"}, name
        assert await raw.closed(), name
        assert await status_of(port, HEALTH) == 200, name


async def test_garbage_after_a_broken_body_ends_it() -> None:
    """Each packet after the error counted as a request, until the connection was not read any more
    and its handler waited for ever.
    """
    async with server() as port, connection(port) as raw:
        raw.send(CHUNKED)
        for _ in range(100):
            raw.send(b"ZZ\r\n")
            await asyncio.sleep(0)
        await raw.response()  # which is lost if more bytes arrive after it
        assert await raw.closed()


@pytest.mark.parametrize("value", ["200-maybe", "\xff"])
async def test_expectations(value: str, caplog: pytest.LogCaptureFixture) -> None:
    async with server() as port:
        assert await status_of(port, request("Host: localhost", f"Expect: {value}")) == 417
        async with connection(port) as raw:
            raw.send(post(JSON, "Expect: 100-continue"))
            assert [await raw.status(), await raw.status()] == [100, 200]
    assert not tracebacks(caplog)


async def test_a_bug_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as port:
        head, _ = await ask(port, request("Host: localhost", target="/broken"))
        assert head.split()[1] == "500"
    assert [str(record.exc_info and record.exc_info[1]) for record in tracebacks(caplog)] == [
        "'a bug'"
    ]


@pytest.mark.parametrize(
    "asked",
    [
        HEALTH,
        b"GARBAGE\r\n\r\n",
        request("Host: localhost", target="/nowhere"),
        post(),
        CHUNKED + b"Z",
        request("Host: localhost", target="/broken"),
        request("Host: localhost", "Expect: x"),
    ],
)
async def test_no_versions_in_headers(asked: bytes) -> None:
    async with server() as port:
        head, body = await ask(port, asked)
        assert "\r\nServer: plumbline\r\n" in head
        assert not [word for word in ("ython", "aiohttp", "/3.") if word in head + body.decode()]


async def test_memory_of_slow_clients_is_small() -> None:
    tracemalloc.start()
    try:
        async with server() as port:
            before, _ = tracemalloc.get_traced_memory()
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
            for _, writer in clients:
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 8000)
            await asyncio.sleep(0.3)
            held = tracemalloc.get_traced_memory()[0] - before
            for _, writer in clients:
                writer.close()
        assert held < 200 * 150_000  # client and server in this process
    finally:
        tracemalloc.stop()


def test_defaults_leave_time() -> None:
    assert QUICK.keepalive > 60  # of usual proxies, which then close first
