"""Servers that take turns, and their pauses."""

import pytest

from services.runner.endpoints import Endpoint, Endpoints


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def picked(endpoints: Endpoints, count: int) -> list[str]:
    return [endpoints.next().name for _ in range(count)]


def test_servers_take_turns_but_for_one_that_pauses() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://a", "http://b", "http://c", "http://a/v1"], clock)
    assert picked(endpoints, 6) == ["a", "b", "c"] * 2
    endpoints.next().pause()
    assert picked(endpoints, 3) == ["b", "c", "b"]
    assert endpoints.closed_for() == 0
    clock.now = 1.0
    assert picked(endpoints, 2) == ["a", "c"]


def test_the_pause_grows_with_failures_up_to_a_limit() -> None:
    clock = Clock()
    endpoint = Endpoint("http://a", clock, 1.0)
    pauses = []
    for _ in range(6):
        assert endpoint.pause()
        assert not endpoint.pause()  # of another request that was on its way
        pauses.append(endpoint.closed_for)
        clock.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 10, 10]
    endpoint.on_success()
    endpoint.pause()
    assert endpoint.closed_for == 1


@pytest.mark.parametrize(("retry_after", "pause"), [(0.0, 0.05), (3.0, 3.0), (1e9, 1.0)])
def test_a_retry_after_is_respected_and_bounded(retry_after: float, pause: float) -> None:
    (endpoint,) = endpoints = Endpoints(["http://a"], Clock())
    endpoint.pause(retry_after)
    assert endpoints.closed_for() == pause
    assert endpoints.all_refuse is (retry_after == 1e9)
