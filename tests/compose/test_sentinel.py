"""A failover of Redis in mid-run, with the replica and the sentinels of configs/redis/sentinel."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shared.service.processes import free_port
from tests.compose.conftest import Step
from tests.compose.stack import SERVICES, Stack, docker, judged, until

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.timeout(900)]
SLOWLY = ("run", "--config", "configs/demo.yaml", "generation.concurrency=1")
FILES = ("configs/redis/sentinel/compose.yml",)


@pytest.fixture
def sentinel_stack(
    stack: Stack, settings: Mapping[str, str], tmp_path: Path, step: Step
) -> Iterator[Stack]:
    """A stack of its own; that of the other tests has built the images and stays as it is."""
    ports = {"AGGREGATOR_PORT": str(free_port()), "REWARD_PORT": str(free_port())}
    started = Stack(tmp_path, {**settings, **ports}, "plumblinesentinel", FILES)
    started.do("down", "--volumes", "--remove-orphans", "--timeout", "5")
    try:
        started.do("up", "-d")
        until("every service healthy", lambda: started.healthy((*SERVICES, "redis-replica")))
        step.done("stack with sentinels")
        yield started
    finally:
        started.remove()


def test_a_run_survives_the_loss_of_its_master(
    sentinel_stack: Stack, expected: Path, tmp_path: Path, step: Step
) -> None:
    stack = sentinel_stack
    assert _master(stack) == _address(stack, "redis")
    run = stack.plumb(*SLOWLY, "output.dir=outputs/failover")
    until("10 verdicts", lambda: stack.verdicts() >= 10)
    replica = _address(stack, "redis-replica")
    docker("kill", *stack.containers("redis"))
    until("the replica is the master", lambda: _master(stack) == replica)
    step.done("failover")
    stack.do("start", "redis")
    printed, _ = run.communicate(timeout=300)
    assert run.returncode == 0, printed
    assert judged(stack.artifacts("failover", tmp_path)) == judged(expected)
    step.done("run with a failover")


def _master(stack: Stack) -> str:
    line = (
        'REDISCLI_AUTH="$REDIS_PASSWORD" redis-cli -p 26379 sentinel get-master-addr-by-name ledger'
    )
    return docker("exec", stack.containers("sentinel-1")[0], "sh", "-c", line).split()[0]


def _address(stack: Stack, service: str) -> str:
    shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    return docker("inspect", "--format", shown, stack.containers(service)[0]).split()[0]
