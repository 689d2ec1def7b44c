"""Servers that take turns, and HTTP connections."""

import resource
import socket

import pytest

from services.runner.endpoints import Endpoint, Endpoints, allow_connections, keepalive_socket

# Turns


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def picked(endpoints: Endpoints, count: int) -> list[str]:
    return [endpoints.next().name for _ in range(count)]


def test_servers_take_turns() -> None:
    endpoints = Endpoints(["http://a", "http://b", "http://c"])
    assert picked(endpoints, 6) == ["a", "b", "c"] * 2


def test_a_server_that_failed_pauses_and_then_gets_one_request() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://a", "http://b"], clock)
    bad = endpoints.next()
    bad.on_failure()
    assert picked(endpoints, 2) == ["b", "b"]
    clock.now = 1.0
    assert picked(endpoints, 3) == ["a", "b", "b"]
    bad.on_success()
    assert picked(endpoints, 2) == ["a", "b"]


def test_the_pause_grows_with_failures_up_to_a_limit() -> None:
    clock = Clock()
    endpoint = Endpoint("http://a", clock, 1.0)
    pauses = []
    for _ in range(8):
        assert endpoint.on_failure() is (endpoint.failures == 1)
        assert endpoint.on_failure() is False  # of another request that was on its way
        pauses.append(endpoint.closed_for)
        clock.now += pauses[-1]
        endpoint.on_send()
    assert pauses == [1, 2, 4, 8, 10, 10, 10, 10]


def test_while_all_pause_the_least_failing_is_taken() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://dead", "http://shaky"], clock)
    dead, shaky = endpoints
    for _ in range(3):
        dead.on_failure()
        clock.now += 5.0
    dead.on_failure()
    shaky.on_failure()
    assert endpoints.all_failing
    assert picked(endpoints, 2) == ["shaky", "shaky"]


def test_urls_are_one_form_and_counted_once() -> None:
    endpoints = Endpoints(["http://a/v1/", "http://a", "http://b/v1"])
    assert [endpoint.url for endpoint in endpoints] == ["http://a/v1", "http://b/v1"]


def test_no_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="no generator URL"):
        Endpoints([])


def test_retry_after_of_a_busy_server_is_respected() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://a", "http://b"], clock)
    busy, other = endpoints
    busy.on_rejection(10.0)
    assert endpoints.closed_for() == 0
    assert picked(endpoints, 2) == ["b", "b"]
    other.on_rejection(4.0)
    assert endpoints.closed_for() == 4.0
    clock.now = 4.0
    assert endpoints.closed_for() == 0
    assert endpoints.next() is other


def test_without_retry_after_the_pause_grows() -> None:
    clock = Clock()
    (endpoint,) = endpoints = Endpoints(["http://a"], clock)
    pauses = []
    for _ in range(7):
        endpoint.on_rejection()
        endpoint.on_rejection()  # of another request that was on its way
        pauses.append(endpoints.closed_for())
        clock.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    endpoint.on_success()
    endpoint.on_rejection()
    assert endpoints.closed_for() == 1


@pytest.mark.parametrize(("retry_after", "pause"), [(0.0, 0.05), (3.0, 3.0), (1e9, 600.0)])
def test_a_retry_after_is_bounded(retry_after: float, pause: float) -> None:
    (endpoint,) = endpoints = Endpoints(["http://a"], Clock())
    endpoint.on_rejection(retry_after)
    assert endpoints.closed_for() == pause
    assert endpoints.all_refuse is (retry_after == 1e9)


def test_requests_are_held_back_until_the_first_server_may_be_probed() -> None:
    clock = Clock()
    dead, busy = endpoints = Endpoints(["http://dead", "http://busy"], clock)
    dead.on_failure()
    busy.on_rejection(20.0)
    assert endpoints.closed_for() == 1.0
    clock.now = 1.0
    assert endpoints.closed_for() == 0
    assert endpoints.next() is dead
    assert endpoints.closed_for() > 0  # one probe at a time
    dead.on_success()
    assert endpoints.closed_for() == 0


# Connections


@pytest.mark.usefixtures("open_files")
def test_open_files_are_allowed_as_connections_need_them() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    assert allow_connections(500) == 500
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, hard)
    assert allow_connections(2000) == 2000
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2256, hard)


@pytest.mark.usefixtures("open_files")
def test_with_a_hard_limit_fewer_connections_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (512, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    assert allow_connections(2000) == 1024 - 256
    assert asked == [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 64))
    assert allow_connections(2000) == 1


def test_connections_have_tcp_keepalive() -> None:
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
