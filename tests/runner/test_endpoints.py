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


def test_a_busy_one_is_left_alone_as_long_as_it_says() -> None:
    clock = Clock()
    endpoints = Endpoints(["http://a", "http://b"], clock)
    busy, other = endpoints
    busy.busy(10.0)
    assert endpoints.pause() == 0
    assert [picked(endpoints).name for _ in range(2)] == ["b", "b"]
    other.busy(4.0)
    assert endpoints.pause() == 4.0
    clock.now = 4.0
    assert endpoints.pause() == 0
    assert picked(endpoints) is other


def test_a_busy_one_that_names_no_time_gets_more_each_time() -> None:
    clock = Clock()
    (endpoint,) = endpoints = Endpoints(["http://a"], clock)
    pauses = []
    for _ in range(7):
        endpoint.busy()
        endpoint.busy()  # of another request that was on its way
        pauses.append(endpoints.pause())
        clock.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    endpoint.succeeded()
    endpoint.busy()
    assert endpoints.pause() == 1


@pytest.mark.parametrize(("told", "pause"), [(0.0, 0.05), (3.0, 3.0), (1e9, 600.0)])
def test_a_retry_after_is_kept_within_reason(told: float, pause: float) -> None:
    (endpoint,) = endpoints = Endpoints(["http://a"], Clock())
    endpoint.busy(told)
    assert endpoints.pause() == pause


def test_a_failing_one_is_no_reason_not_to_wait_for_the_busy_one() -> None:
    clock = Clock()
    dead, busy = endpoints = Endpoints(["http://dead", "http://busy"], clock)
    dead.failed()
    busy.busy(20.0)
    assert endpoints.pause() == 20.0
    clock.now = 1.0  # the dead one is to be tried again
    assert endpoints.pause() == 0
    with endpoints.borrow() as tried:
        assert tried is dead
        assert endpoints.pause() == 19.0


def test_where_all_fail_nobody_waits_for_them() -> None:
    """Their requests have pauses of their own, and count as failures."""
    endpoints = Endpoints(["http://a", "http://b"], Clock())
    for endpoint in endpoints:
        endpoint.failed()
    assert endpoints.pause() == 0
