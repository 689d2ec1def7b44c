"""Verdicts do not depend on concurrency or load."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.config import load_config
from tests.bench.answers import Answer
from tests.conftest import RedisServer
from tests.e2e.load import (
    CORES,
    SPINNER,
    SPINNERS,
    burners,
    judged,
    judged_beside_burners,
    made_answers,
    recorded_answers,
)
from tests.judge.tasks import stdio
from tests.sandboxes import own_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(600)]

# PLUMBLINE_LOAD_CASES=1000 takes them all, which is a matter of a quarter of an hour.
_CASES = int(os.environ.get("PLUMBLINE_LOAD_CASES", "6"))


@contextmanager
def one_core() -> Iterator[None]:
    """For what is started meanwhile."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.real_data
def test_verdicts_are_the_same_one_by_one_and_32_at_once_beside_burners(
    real_data: Path, redis_server: RedisServer, tmp_path: Path
) -> None:
    recorded = recorded_answers(real_data, tmp_path, _CASES, every=1)
    answers = recorded + made_answers(recorded[0].problem)
    alone, together = judged_beside_burners(redis_server.url, tmp_path, answers, CORES)
    assert {i: (alone[i], together[i]) for i in alone if alone[i] != together[i]} == {}
    assert len(recorded) == 91
    assert [alone[len(recorded) + number] for number in range(SPINNERS)] == [[1]] * SPINNERS
    assert {code for codes in alone.values() for code in codes} >= {1, 0, -2, -3}


def test_a_machine_that_others_use_up_makes_no_time_out(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    # Half a second of the processor's time, of which there is a sixth: three seconds, while the
    # wall-clock limit of a run by itself is two.
    config = load_config(None, ["sandbox.timeout=0.7"])
    answers = [Answer(stdio(("1", "1")), SPINNER.replace("1.5", "0.5"))]
    with one_core(), own_sandbox(tmp_path) as sandbox, burners(5, alone=True):
        found = asyncio.run(judged(sandbox, redis_server.url, answers, config, 1))
    assert found == {0: [1]}
