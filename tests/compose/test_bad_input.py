"""Bad input: one line in the log, and the same reason at /readyz."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.compose.stack import Stack, docker, health, until

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.timeout(900)]


@contextmanager
def started(stack: Stack, service: str, **variables: str) -> Iterator[str]:
    """One more container of a service, with other settings."""
    given = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
    name = f"{stack.project}-wrong-{service}"
    stack.do("run", "-d", "--no-deps", "--name", name, *given, service)
    try:
        yield name
    finally:
        docker("rm", "-f", name)


def red(container: str, reason: str) -> None:
    """Its health check is red for ``reason``, and one line of its log says the same."""
    until(f"{container} red", lambda: reason in str(health(container)["Log"][-1:]), 40)
    checks = health(container)["Log"]
    assert {check["ExitCode"] for check in checks} == {1}
    answer = json.loads(checks[-1]["Output"])
    assert answer["ready"] is False
    assert reason in answer["reason"]
    logged = subprocess.run(
        ["docker", "logs", container], capture_output=True, text=True, check=True
    )
    lines = [line for line in (logged.stdout + logged.stderr).splitlines() if reason in line]
    assert len(lines) == 1, lines
    assert json.loads(lines[0])["reason"] == answer["reason"]


def test_a_wrong_redis_password(stack: Stack) -> None:
    with (
        started(stack, "judge", REDIS_PASSWORD="wrong") as judge,
        started(stack, "aggregator", REDIS_PASSWORD="wrong") as aggregator,
        started(stack, "reward", REDIS_PASSWORD="wrong") as reward,
    ):
        for container in (judge, aggregator, reward):
            red(container, "refuses the password")
    said = stack.do(
        "run", "--rm", "-T", "-e", "REDIS_PASSWORD=wrong", "runner", "run", "--config",
        "configs/demo.yaml", expect=2,
    )  # fmt: skip
    assert "refuses the password" in said


def test_a_sandbox_that_is_not_there(stack: Stack) -> None:
    with started(stack, "judge", SANDBOX_URLS="http://nowhere:8080") as judge:
        red(judge, "no sandbox answers, tried http://nowhere:8080")
