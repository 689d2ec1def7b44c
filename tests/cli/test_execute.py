"""Waiting for dependencies that start, and `plumb judge` into the folder of an earlier one."""

from collections.abc import Callable

import pytest
from redis import Redis

from services.cli.display import ProgressDisplay
from services.cli.execute import WAIT_VARIABLE, check_completions, waited_for
from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError, UnavailableError
from shared.ledger import Ledger
from shared.schemas import SampleId, sha256
from tests.shared.ledgers import RUN, enter, generation, verdict


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


SAMPLES = [SampleId("d1", f"p{number}") for number in range(3)]


def test_verdicts_of_other_completions_are_not_replaced(redis: Redis) -> None:
    ledger, folder = Ledger(redis, RUN), OutputFolder("outputs/mine")
    same = {sample: sha256("old") for sample in SAMPLES}
    check_completions(ledger, same, folder)  # a run that does not exist yet
    enter(ledger)
    ledger.record(*(generation(sample, "old") for sample in SAMPLES))
    ledger.record_verdict(verdict(generation(SAMPLES[0], "old")))
    check_completions(ledger, same, folder)
    with pytest.raises(OutputError) as caught:
        check_completions(ledger, dict.fromkeys(SAMPLES, "other"), folder)
    message = str(caught.value)
    assert "3 of 3 completions differ; another --output, or --force" in message
    assert "outputs/mine" in message
