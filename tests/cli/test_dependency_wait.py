"""Waiting for dependencies that are starting."""

from collections.abc import Callable

import pytest

from services.cli.display import ProgressDisplay
from services.cli.execute import WAIT_VARIABLE, DependencyWait
from shared.errors import ServiceError, UnavailableError


class Notes(ProgressDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def _waits_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "60")


def failing(*errors: ServiceError) -> Callable[[], str]:
    waiting = list(errors)

    def check() -> str:
        if waiting:
            raise waiting.pop(0)
        return "there"

    return check


def test_each_reason_is_said_once() -> None:
    notes = Notes()
    check = failing(*(UnavailableError(text) for text in ("cold", "cold", "warm", "warm")))
    assert DependencyWait(notes, poll_seconds=0.01).wait(check) == "there"
    assert notes.said == ["waiting: cold", "waiting: warm"]


def test_what_will_not_get_better_is_not_waited_for() -> None:
    with pytest.raises(ServiceError, match="another key"):
        DependencyWait(Notes(), poll_seconds=0.01).wait(failing(ServiceError("another key")))


def test_a_reason_is_repeated_with_its_time_and_the_pods_that_are_not_ready(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(WAIT_VARIABLE, "60")
    monkeypatch.setattr("services.cli.execute._NOTE_SECONDS", 0.0)
    monkeypatch.setattr("services.cli.execute.unready_pods", lambda: ["redis-0 is Pending"])
    notes = Notes()
    DependencyWait(notes, poll_seconds=0).wait(failing(*[UnavailableError("cold")] * 2))
    assert notes.said == ["waiting: cold", "waiting: redis-0 is Pending"] * 2
