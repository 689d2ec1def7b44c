"""Servers that take turns, and HTTP connections."""

import pytest

from services.runner.endpoints import Endpoint, Endpoints

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
