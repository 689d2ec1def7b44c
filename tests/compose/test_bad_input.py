"""Bad input: one line in the log, and the same reason at /readyz."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def test_completions_that_are_not_there(stack: Stack) -> None:
    missing = {"PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS": "demo/none.jsonl"}
    with started(stack, "generator", **missing) as generator:
        red(generator, "demo/none.jsonl")


def test_a_model_that_is_not_served(stack: Stack) -> None:
    said = stack.do(
        "run", "--rm", "-T", "runner", "run", "--config", "configs/demo.yaml",
        "generation.model=absent", "output.dir=outputs/absent", expect=2,
    )  # fmt: skip
    assert "does not serve the model 'absent'; it serves: replay" in said


def test_a_generator_that_is_not_there_is_waited_for(stack: Stack) -> None:
    said = stack.do(
        "run", "--rm", "-T", "-e", "PLUMBLINE_WAIT_SECONDS=3", "-e",
        "GENERATOR_URLS=http://generator:9/v1", "runner", "run", "--config", "configs/demo.yaml",
        expect=2,
    )  # fmt: skip
    assert "waiting: cannot reach the generator http://generator:9/v1" in said
    assert "plumb: cannot reach the generator http://generator:9/v1" in said


def test_too_little_memory_for_the_ledger(stack: Stack) -> None:
    stack.redis("config set maxmemory 1mb")
    try:
        said = stack.do(
            "run", "--rm", "-T", "runner", "run", "--config", "configs/demo.yaml",
            "output.dir=outputs/memory", expect=2,
        )  # fmt: skip
    finally:
        stack.redis("config set maxmemory 256mb")
    assert "Redis is out of memory" in said


def test_a_port_that_is_taken(stack: Stack, settings: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = Stack(tmp_path, {**settings, "AGGREGATOR_PORT": str(port)}, "plumblinetestport")
        try:
            said = other.do("up", "-d", "--no-deps", "aggregator", expect=None)
        finally:
            other.do("down", "--volumes", "--timeout", "1")
    assert str(port) in said
    assert "in use" in said or "already allocated" in said


def test_no_gpu(stack: Stack, settings: dict[str, str], tmp_path: Path) -> None:
    if "nvidia" in docker("info", "-f", "{{.Runtimes}}"):
        pytest.skip("this engine has NVIDIA's runtime")
    image = "localhost/plumbline/generator"
    if not docker("images", "-q", f"{image}:0.1.0"):
        docker("tag", f"{image}-cpu:0.1.0", f"{image}:0.1.0")
    other = Stack(tmp_path, settings, "plumblinetestgpu", ["docker-compose.gpu.yml"])
    try:
        said = other.do("up", "-d", "--no-deps", "generator", expect=None)
    finally:
        other.do("down", "--volumes", "--timeout", "1")
    assert 'could not select device driver "nvidia"' in said
