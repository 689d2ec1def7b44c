"""The demo in Compose gives the verdicts of the embedded demo, despite injected faults."""

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from shared.service.processes import free_port
from tests.compose.conftest import Step
from tests.compose.stack import Stack, docker, health, judged, until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
DEMO = ("run", "--config", "configs/demo.yaml")
# Half a second for each answer: a run of half a minute, and judging keeps up with it.
SLOWLY = (*DEMO, "generation.concurrency=1")


def same(stack: Stack, output: str, expected: Path, tmp_path: Path) -> dict[str, Any]:
    """The run is complete and says what the embedded one said; returns its run.json."""
    folder = stack.artifacts(output, tmp_path)
    run = json.loads((folder / "run.json").read_text())
    assert (run["state"], run["complete"]) == ("complete", True)
    assert judged(folder) == judged(expected)
    return dict(run)


def test_the_demo_has_the_embedded_demos_verdicts(
    stack: Stack, expected: Path, tmp_path: Path, step: Step
) -> None:
    step.done("embedded demo, the rest of it")
    demo = stack.plumb()
    printed, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, printed
    step.done("demo")
    run = same(stack, "demo", expected, tmp_path)
    assert run["git_commit"] == stack.settings["PLUMBLINE_REVISION"]
    assert run["versions"]["images"] == "localhost/plumbline/*:0.1.0"
    workers = {
        json.loads(line)["worker"]
        for line in (tmp_path / "demo" / "verdicts.jsonl").read_text().splitlines()
    }
    assert len(workers) == 3


@pytest.mark.usefixtures("images")
def test_the_two_commands_of_the_readme_without_settings(tmp_path: Path, step: Step) -> None:
    plain = Stack(tmp_path, {"AGGREGATOR_PORT": str(free_port())}, "plumblinetestplain")
    try:
        for time_of_it in ("first", "again", "after down -v"):
            plain.do("up", "-d")
            printed = plain.do("run", "--rm", "-T", "runner")
            assert "58 of 58 samples judged" in printed, time_of_it
            if time_of_it == "again":
                plain.do("down", "-v", "--timeout", "5")
    finally:
        plain.remove()
    step.done("up and demo without settings, twice and after down -v")


def test_faults_in_mid_run_change_nothing(
    stack: Stack, expected: Path, tmp_path: Path, step: Step
) -> None:
    before = stack.verdicts()
    run = stack.plumb(*SLOWLY, "output.dir=outputs/faults")
    until("10 verdicts", lambda: stack.verdicts() >= before + 10)
    victim = stack.containers("judge")[0]
    os.kill(int(docker("inspect", "-f", "{{.State.Pid}}", victim)), signal.SIGKILL)
    until("20 verdicts", lambda: stack.verdicts() >= before + 20)
    stack.do_in_mid_run("restart", "redis")
    until("30 verdicts", lambda: stack.verdicts() >= before + 30)
    stack.do_in_mid_run("stop", "sandbox")
    time.sleep(20)
    assert stack.verdicts() < before + 58
    stack.do("start", "sandbox")
    printed, _ = run.communicate(timeout=300)
    assert run.returncode == 0, printed
    same(stack, "faults", expected, tmp_path)
    until("the killed judge is there again", lambda: health(victim)["Status"] == "healthy")
    step.done("run with a judge killed, Redis restarted, the sandbox away for 20 s")


def test_fewer_judges_in_mid_run_lose_nothing(
    stack: Stack, expected: Path, tmp_path: Path, step: Step
) -> None:
    before = stack.verdicts()
    run = stack.plumb(*SLOWLY, "output.dir=outputs/scaled")
    until("15 verdicts", lambda: stack.verdicts() >= before + 15)
    scale = ("up", "-d", "--no-deps", "--no-recreate", "--scale", "judge=1", "judge")
    stack.do_in_mid_run(*scale)
    assert len(stack.containers("judge")) == 1
    assert stack.verdicts() < before + 58
    printed, _ = run.communicate(timeout=300)
    assert run.returncode == 0, printed
    record = same(stack, "scaled", expected, tmp_path)
    assert not record.get("redeliveries")  # each finished the job in hand
    step.done("run with judge scaled from 3 to 1")


def test_only_judges_reach_the_sandbox(stack: Stack) -> None:
    ask = "import urllib.request as u; u.urlopen('http://sandbox:8080/v1/ping', timeout=3)"
    call = "import socket; socket.create_connection(('{}', {}), timeout=2)"
    judge, *_ = stack.containers("judge")
    aggregator, *_ = stack.containers("aggregator")
    sandbox, *_ = stack.containers("sandbox")
    docker("exec", judge, "python", "-c", ask)
    bridge = "{{range .IPAM.Config}}{{.Gateway}}{{end}}"
    gateway = docker("network", "inspect", "-f", bridge, f"{stack.project}_sandbox")
    with socket.socket() as here:
        here.bind(("", 0))
        here.listen()
        for container, code in (
            (aggregator, ask),
            (sandbox, call.format("redis", 6379)),
            (sandbox, call.format("192.0.2.1", 80)),
            (sandbox, call.format(gateway, here.getsockname()[1])),
        ):
            with pytest.raises(AssertionError, match=r"gaierror|unreachable|No route|timed out"):
                docker("exec", container, "python", "-c", code)


@pytest.mark.parametrize(
    ("service", "asked"),
    [
        ("judge", "'http://sandbox:8080/run_code', data=b'{}', headers={'Content-Type': JSON}"),
        ("judge", "'http://sandbox:8080/metrics'"),
        ("aggregator", "'http://localhost:8081/api/runs'"),
        ("aggregator", "'http://localhost:8081/metrics'"),
        ("generator", "'http://localhost:8000/v1/models'"),
    ],
)
def test_without_its_token_a_service_tells_nothing(stack: Stack, service: str, asked: str) -> None:
    code = (
        "import urllib.request as u; JSON = 'application/json'; "
        f"u.build_opener(u.ProxyHandler({{}})).open(u.Request({asked}), timeout=3)"
    )
    container, *_ = stack.containers(service)
    with pytest.raises(AssertionError, match="HTTP Error 401"):
        docker("exec", container, "python", "-c", code)


def test_the_services_users_have_the_rights_that_they_need(stack: Stack) -> None:
    """After the runs above; wrong passwords of other tests are in the log too."""
    refused = [line for line in stack.redis("acl log").splitlines() if line.strip('"') != "auth"]
    assert not {"command", "key", "channel"} & {line.strip(' "') for line in refused}
    users = stack.redis("acl users").split()
    assert sorted(users) == ["aggregator", "default", "judge", "keda", "reward", "runner"]
    listed = stack.redis("acl list")
    assert "nopass" not in listed
    assert "user keda off" in listed


def test_no_password_is_in_redis_command_line_or_log(stack: Stack) -> None:
    container, *_ = stack.containers("redis")
    arguments = docker("exec", container, "sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '")
    log = docker("logs", container)
    written = docker("exec", container, "cat", "/run/redis/users.acl")
    generated = docker("exec", container, "sh", "-c", "tail -n +1 /run/secrets/redis/*").split()
    own = [stack.settings["REDIS_PASSWORD"], stack.settings["REDIS_JUDGE_PASSWORD"]]
    passwords = [*own, *(word for word in generated if len(word) == 48)]
    assert len(set(passwords)) == 7
    assert [word for word in passwords if word in arguments + log + written] == []


def test_a_service_reads_its_own_password_alone(stack: Stack) -> None:
    command = "for file in /run/secrets/redis/*; do test -r $file && basename $file; done; true"
    for service in ("judge", "aggregator"):
        container, *_ = stack.containers(service)
        assert docker("exec", container, "sh", "-c", command).split() == [service]


def test_published_on_loopback_alone(stack: Stack) -> None:
    ports = docker("ps", "--filter", f"name={stack.project}", "--format", "{{.Ports}}")
    published = [part for part in ports.replace("\n", ",").split(",") if "->" in part]
    assert [part.strip() for part in published] == [
        f"127.0.0.1:{stack.settings['AGGREGATOR_PORT']}->8081/tcp"
    ]
