"""The proxy before a sandbox: what a client gets while it is disturbed, and afterwards."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, Timer

import pytest

from tests.chaos.proxy import SandboxProxy, in_background
from tests.chaos.schedule import HUNG, LATE, WRONG_ANSWERS


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def echo() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[SandboxProxy]:
    proxy = SandboxProxy()
    proxy.port_file = tmp_path / "port"
    with echo() as port, in_background(proxy.serving()):
        proxy.port_file.write_text(f"{port}\n")
        yield proxy


def post(proxy: SandboxProxy, body: bytes = b"x" * 200_000) -> bytes:
    with urllib.request.urlopen(proxy.url, body, timeout=20) as answer:
        return bytes(answer.read())


def test_calls_pass_while_nothing_is_wrong(proxy: SandboxProxy) -> None:
    assert post(proxy) == b"x" * 200_000


@pytest.mark.parametrize("fault", WRONG_ANSWERS)
def test_a_wrong_answer_ends_with_the_fault(fault: str, proxy: SandboxProxy) -> None:
    proxy.disturb(fault)
    with suppress(urllib.error.HTTPError, HTTPException):
        assert post(proxy) != b"x" * 200_000
    proxy.disturb("")
    assert post(proxy) == b"x" * 200_000


def test_a_late_answer_is_the_right_one(proxy: SandboxProxy) -> None:
    proxy.disturb(LATE)
    assert post(proxy, b"x") == b"x"


def test_a_call_to_a_hung_sandbox_ends_without_an_answer(proxy: SandboxProxy) -> None:
    proxy.disturb(HUNG)
    Timer(0.2, proxy.disturb, [""]).start()
    with pytest.raises((OSError, HTTPException)):
        post(proxy)
    assert post(proxy, b"x") == b"x"
