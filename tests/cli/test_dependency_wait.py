"""Waiting for dependencies that are starting."""

from collections.abc import Callable

import pytest

from services.cli.display import ProgressDisplay
from services.cli.execute import WAIT_VARIABLE, waited_for
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
    assert waited_for(check, notes, 0.01) == "there"
    assert notes.said == ["waiting: cold", "waiting: warm"]


def test_what_will_not_get_better_is_not_waited_for() -> None:
    with pytest.raises(ServiceError, match="another key"):
        waited_for(failing(ServiceError("another key")), Notes(), 0.01)
