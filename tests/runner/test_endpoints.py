import pytest

from services.runner.endpoints import Endpoint, Endpoints


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def picked(endpoints: Endpoints) -> Endpoint:
    with endpoints.borrow() as endpoint:
        return endpoint


def test_equal_ones_take_turns() -> None:
    endpoints = Endpoints(["http://a", "http://b", "http://c"])
    assert [picked(endpoints).name for _ in range(6)] == ["a", "b", "c"] * 2


def test_fewest_in_flight_comes_first() -> None:
    endpoints = Endpoints(["http://a", "http://b"])
    with endpoints.borrow() as first:
        assert [picked(endpoints).name for _ in range(3)] == ["b"] * 3
    assert first.name == "a"


def test_failing_one_is_avoided_then_tried_with_one_request() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://a", "http://b"], clock)
    bad = picked(endpoints)
    bad.failed()
    assert [picked(endpoints).name for _ in range(2)] == ["b", "b"]
    clock.now = 1.0
    with endpoints.borrow() as probed, endpoints.borrow() as other, endpoints.borrow() as third:
        assert (probed.name, other.name, third.name) == ("a", "b", "b")
    probed.succeeded()
    assert not probed.avoided


def test_pause_grows_with_failures_up_to_a_limit() -> None:
    clock = Clock()
    endpoint = Endpoint("http://a", clock)
    pauses = []
    for _ in range(8):
        endpoint.failed()
        start = clock.now
        while endpoint.avoided:
            clock.now += 1.0
        pauses.append(clock.now - start)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_with_none_left_the_least_failing_is_taken() -> None:
    endpoints = Endpoints(["http://dead", "http://shaky"], Clock())
    dead, shaky = endpoints
    for _ in range(3):
        dead.failed()
    shaky.failed()
    assert not endpoints.any_free_of_failures
    assert [picked(endpoints).name for _ in range(2)] == ["shaky", "shaky"]


def test_urls_are_one_form_and_counted_once() -> None:
    endpoints = Endpoints(["http://a/v1/", "http://a", "http://b/v1"])
    assert [endpoint.url for endpoint in endpoints] == ["http://a/v1", "http://b/v1"]


def test_no_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="no generator URL"):
        Endpoints([])
