import os
from collections.abc import Iterator

import hypothesis
import pytest

from tests.clients.stand_in import Server, stand_in

# No test depends on how fast the machine is; the same examples each time (see tests/conftest.py).
hypothesis.settings.register_profile(
    "clients",
    deadline=None,
    derandomize="PLUMBLINE_TEST_EXPLORE" not in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("clients")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PLUMBLINE_REWARD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with stand_in() as server:
        yield server
