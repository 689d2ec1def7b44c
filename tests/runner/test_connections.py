import resource
import socket
from collections.abc import Iterator

import pytest

from services.runner.connections import _socket, allow_connections


@pytest.fixture
def files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("files")
def test_open_files_are_allowed_as_connections_need_them() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    assert allow_connections(500) == 500
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, hard)
    assert allow_connections(2000) == 2000
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2256, hard)


@pytest.mark.usefixtures("files")
def test_where_no_more_are_to_be_had_fewer_connections_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (512, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    assert allow_connections(2000) == 1024 - 256
    assert asked == [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 64))
    assert allow_connections(2000) == 1


def test_a_connection_asks_whether_its_peer_is_there() -> None:
    with _socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
