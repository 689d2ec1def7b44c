"""Prometheus scrapes the stack and evaluates every rule.

Its configuration is the committed one with times that are a sixtieth. The drill fires each alert.
"""

from collections.abc import Iterator

import pytest
import yaml

from shared.service.processes import free_port
from tests.compose.alerts import Prometheus, compressed
from tests.compose.conftest import Step
from tests.compose.offline.stand_ins import tag
from tests.compose.stack import ROOT, Stack, docker, until

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.timeout(900)]
CONFIGS = ROOT / "configs/prometheus"


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
