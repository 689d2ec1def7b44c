"""Prometheus scrapes the stack, and one fault fires each alert once.

Its configuration is the committed one with times that are a sixtieth.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from shared.service.processes import free_port
from tests.compose.alerts import Prometheus, compressed
from tests.compose.conftest import Step
from tests.compose.offline.stand_ins import tag
from tests.compose.stack import ROOT, Stack, docker, paused, until

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.timeout(900)]
CONFIGS = ROOT / "configs/prometheus"
# Half a second for each answer, and samples are given up after two seconds without a verdict.
RUN = (
    "run", "--config", "configs/demo.yaml", "generation.concurrency=1", "judge.retry_budget=2",
    "output.dir=outputs/alerts",
)  # fmt: skip


def rule_names(kind: str) -> set[str]:
    groups = yaml.safe_load((CONFIGS / "rules.yml").read_text())["groups"]
    return {rule[kind] for group in groups for rule in group["rules"] if kind in rule}


@pytest.fixture(scope="module")
def prometheus(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory, step: Step
) -> Iterator[Prometheus]:
    configs = tmp_path_factory.mktemp("prometheus")
    configs.chmod(0o755)  # it is nobody who reads it
    for name in ("prometheus.yml", "rules.yml"):
        (configs / name).write_text(compressed((CONFIGS / name).read_text()))
    port = str(free_port())
    settings = {"PROMETHEUS_CONFIG": str(configs), "PROMETHEUS_PORT": port}
    observed = Stack(configs, stack.settings | settings)
    stack.do("up", "-d", "--no-deps", "--no-recreate", "--scale", "judge=3", "judge")
    stack.do("up", "-d", "--no-deps", "--no-recreate", "reward", profile="reward")
    observed.do("up", "-d", "--no-deps", "prometheus", profile="observability")
    server = Prometheus(port)
    until("Prometheus answers", server.answers)
    step.done("Prometheus up")
    yield server
    observed.do("rm", "--stop", "--force", "-v", "prometheus", profile="observability")
    stack.do("rm", "--stop", "--force", "-v", "reward", profile="reward")
    step.done("alerts")


def test_the_configuration_as_it_is_committed(stack: Stack) -> None:
    image = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]
    check = ("check", "config", "/etc/prometheus/prometheus.yml")
    mounted = ("-v", f"{CONFIGS}:/etc/prometheus:ro", "--entrypoint", "/bin/promtool")
    said = docker("run", "--rm", *mounted, tag(image["image"]), *check)
    assert f"{len(rule_names('alert') | rule_names('record'))} rules found" in said


def test_every_target_is_up(prometheus: Prometheus) -> None:
    judges = [("judge", "up")] * 3
    expected = [("aggregator", "up"), ("generator", "up"), *judges, ("reward", "up")]
    until("six targets up", lambda: prometheus.targets() == expected, 60)
    jobs = yaml.safe_load((CONFIGS / "prometheus.yml").read_text())["scrape_configs"]
    assert {job["job_name"] for job in jobs} == {job for job, _ in expected}


def test_every_rule_is_evaluated(prometheus: Prometheus) -> None:
    names = rule_names("alert") | rule_names("record")
    until("rules evaluated", lambda: {r["health"] for r in prometheus.rules().values()} == {"ok"})
    rules = prometheus.rules()
    assert rules.keys() == names
    assert [rule["lastError"] for rule in rules.values() if rule.get("lastError")] == []


def test_no_judges_then_no_generator_then_a_broken_sandbox(
    stack: Stack, prometheus: Prometheus, step: Step
) -> None:
    before = stack.verdicts()
    generator, *_ = stack.containers("generator")
    waiting = ("PlumblineNoJudges", "PlumblineJudgeQueueAgeing")
    with ExitStack() as standstill:
        with prometheus.fires("PlumblineNoProgress", "PlumblineTargetDown", *waiting):
            run = stack.plumb(*RUN)
            until("5 verdicts", lambda: stack.verdicts() >= before + 5)
            stack.do("stop", "judge")
            forget_killed_workers(stack)
            standstill.enter_context(paused(generator))
        step.done("no judges, generator paused")
        failing = ("PlumblineSandboxFailing", "PlumblineInfraErrorShare")
        with broken_sandbox(stack), prometheus.fires("PlumblineUnjudged", *failing):
            stack.do("start", "judge")
            standstill.close()
    step.done("broken sandbox")
    printed, _ = run.communicate(timeout=120)
    assert run.returncode == 1, printed  # the samples that were given up are missing
    step.done("run ended")


def test_engines_that_do_not_start_and_an_index_that_is_behind(
    stack: Stack, prometheus: Prometheus, step: Step
) -> None:
    names = ("PlumblineReplicaRestarting", "PlumblineIndexBehind")
    of_a_judge = ("PlumblineSandboxUntrusted", "PlumblineFileDescriptors")
    with ExitStack() as faults, prometheus.fires(*names, *of_a_judge):
        faults.enter_context(no_engines(stack))
        faults.enter_context(held_index(stack))
        # One more judge: its sandbox judges canaries wrongly, and its files are open.
        faults.enter_context(stand_in(stack, "judge", "judge", network="monitoring"))
    step.done("replica restarting, index behind, sandbox untrusted")
    over = {"PlumblineIndexBehind", "PlumblineTargetDown", "PlumblineNoJudges"}
    until("what is over is no alert", lambda: over.isdisjoint(prometheus.alerts()), 30)
    step.done("alerts that are over")


def test_rewards_that_are_late_refused_or_not_judged(
    stack: Stack, prometheus: Prometheus, step: Step
) -> None:
    names = ("PlumblineRewardUnjudged", "PlumblineRewardWaiting", "PlumblineRewardRefused")
    with ExitStack() as faults, prometheus.fires(*names):
        faults.enter_context(failing_rewards(stack))
    step.done("rewards late, refused and not judged")


def test_redis_that_fills_and_a_sandbox_that_hangs(
    stack: Stack, prometheus: Prometheus, step: Step
) -> None:
    names = ("PlumblineRedisFillsSoon", "PlumblineRedisMemoryHigh")
    with ExitStack() as faults, prometheus.fires(*names):
        faults.enter_context(filled_redis(stack))
    step.done("Redis fills")
    with prometheus.fires("PlumblineRedisDown"):
        stack.do("stop", "redis")
    stack.do("start", "redis")
    until("Redis answers again", lambda: "PlumblineRedisDown" not in prometheus.alerts())
    step.done("Redis down")
    before = stack.verdicts()
    run = stack.plumb(
        *("run", "--config", "configs/demo.yaml", "generation.concurrency=1"),
        "output.dir=outputs/held",
    )
    until("5 verdicts", lambda: stack.verdicts() >= before + 5)
    sandbox, *_ = stack.containers("sandbox")
    with paused(sandbox), prometheus.fires("PlumblineLeaseAgeing"):
        pass
    printed, _ = run.communicate(timeout=120)
    assert run.returncode == 0, printed
    step.done("a sandbox hung")


def test_every_alert_has_fired(prometheus: Prometheus) -> None:
    assert prometheus.fired == rule_names("alert")


@contextmanager
def filled_redis(stack: Stack) -> Iterator[None]:
    """Redis fills from 60 to 88 % of a maxmemory; over some seconds, as a prediction needs.

    40 MB come first, beside which buffers of clients are small.
    """
    _, limit = stack.redis("config get maxmemory").split()
    ballast = [f"ballast:{number}" for number in range(21)]
    try:
        stack.redis(f"setrange {ballast[0]} 40000000 x")
        info = dict(line.split(":") for line in stack.redis("info memory").split() if ":" in line)
        small = int(int(info["used_memory"]) / 0.6)
        stack.redis(f"config set maxmemory {small}")
        for key in ballast[1:]:
            stack.redis(f"setrange {key} {small * 28 // 2000} x")
            time.sleep(0.5)
        yield
    finally:
        stack.redis(f"del {' '.join(ballast)}")
        stack.redis(f"config set maxmemory {limit}")


def forget_killed_workers(stack: Stack) -> None:
    """RQ does so after seven minutes; who is stopped takes itself off the list."""
    for key in stack.redis("--scan --pattern 'rq:worker:*'").split():
        stack.redis(f"del {key}")


@contextmanager
def broken_sandbox(stack: Stack) -> Iterator[None]:
    """In the sandbox's place, under its alias, a server that runs nothing and says 500."""
    stack.do("stop", "sandbox")
    try:
        with stand_in(stack, "aggregator", "sandbox", network="sandbox"):
            yield
    finally:
        stack.do("start", "sandbox")


@contextmanager
def failing_rewards(stack: Stack) -> Iterator[None]:
    """In the reward service's place, under its alias, one that answers late or not at all."""
    stack.do("stop", "reward", profile="reward")
    try:
        with stand_in(stack, "reward", "reward", network="monitoring"):
            yield
    finally:
        stack.do("start", "reward", profile="reward")


@contextmanager
def no_engines(stack: Stack) -> Iterator[None]:
    """In the generator's place, under its alias, our router before engines that do not come up."""
    stack.do("stop", "generator")
    try:
        with stand_in(stack, "generator", "generator", network="monitoring"):
            yield
    finally:
        stack.do("start", "generator")


@contextmanager
def stand_in(stack: Stack, image_of: str, alias: str, *, network: str) -> Iterator[None]:
    """A container of a service's image that runs ``alerts_<alias>.py``."""
    name = f"{stack.project}-no-{alias}"
    program = Path(__file__).with_name(f"alerts_{alias}.py")
    profile = "reward" if image_of == "reward" else ""
    image = yaml.safe_load(stack.do("config", profile=profile))["services"][image_of]["image"]
    docker(
        "run", "-d", "--name", name, "-v", f"{program}:/{program.name}:ro",
        "--network", f"{stack.project}_{network}", "--network-alias", alias,
        "-e", f"PLUMBLINE_ALLOWED_HOSTS={alias}",
        "-e", "PLUMBLINE_GENERATOR_ROUTER_RESTART_BACKOFF=0.5",
        "--entrypoint", "python", image, f"/{program.name}",
    )  # fmt: skip
    try:
        yield
    finally:
        docker("rm", "-f", name)


@contextmanager
def held_index(stack: Stack) -> Iterator[None]:
    """The index cannot be written, and more than a thousand verdicts come in."""
    program = Path(__file__).with_name("alerts_backlog.py").read_text()
    aggregator, *_ = stack.containers("aggregator")
    user = ["-e", "REDIS_USERNAME=runner", "-e", "REDIS_PASSWORD"]
    command = ["docker", "exec", "-i", *user, aggregator, "python", "-c", program]
    redis, *_ = stack.containers("redis")
    password = {"REDIS_PASSWORD": docker("exec", redis, "cat", "/run/secrets/redis/runner")}
    holder = subprocess.Popen(
        command,
        env=os.environ | password,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        _, said = holder.communicate(timeout=60)
    assert holder.returncode == 0, said
