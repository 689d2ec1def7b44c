"""Tokens and host names in the compose file; needs no engine."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.aggregator.settings import AggregatorSettings
from services.generator.settings import GeneratorSettings
from services.judge.jobs import JudgeSettings
from services.reward.settings import RewardSettings
from services.sandbox.settings import SandboxSettings
from shared.service.settings import ServiceSettings
from tests.compose.stack import ROOT

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
KINDS: dict[str, type[ServiceSettings]] = {
    "sandbox": SandboxSettings,
    "judge": JudgeSettings,
    "aggregator": AggregatorSettings,
    "reward": RewardSettings,
    "generator": GeneratorSettings,
}


def environment(service: str, **variables_set: str) -> dict[str, str]:
    """A service's variables, with those of ``.env`` filled in as Compose does."""

    def value(match: re.Match[str]) -> str:
        return variables_set.get(match[1]) or match[2] or ""

    template = r"\$\{(\w+)(?::-([^}]*))?\}"
    variables = SERVICES[service]["environment"]
    return {name: re.sub(template, value, str(text)) for name, text in variables.items()}


def settings(service: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> ServiceSettings:
    for name, value in environment(service, **variables).items():
        if not name.endswith("_FILE"):  # mounted
            monkeypatch.setenv(name, value)
    return KINDS[service]()


@pytest.mark.parametrize("service", KINDS)
def test_services_answer_to_their_names(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = settings(service, monkeypatch, PLUMBLINE_ALLOWED_HOSTS="eval.example.org")
    assert loaded.hosts.admits(service)
    assert not loaded.hosts.admits("evil.example")
    published = service not in ("sandbox", "judge")
    assert loaded.hosts.admits("eval.example.org") == published


@pytest.mark.parametrize(
    ("service", "variable"),
    [
        ("sandbox", "SANDBOX_TOKEN"),
        ("aggregator", "AGGREGATOR_TOKEN"),
        ("reward", "REWARD_TOKEN"),
        ("generator", "OPENAI_API_KEY"),
    ],
)
def test_tokens_of_the_env_file(
    service: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer = settings(service, monkeypatch, **{variable: "s3cret"}).bearer
    assert bearer is not None
    assert bearer.matches("s3cret")
    assert f"#{variable}=" in (ROOT / ".env.example").read_text()


def test_no_reward_is_remembered_for_another_sandbox() -> None:
    name = "PLUMBLINE_REWARD_ENVIRONMENT"
    own = environment("reward", SANDBOX_URLS="http://other:8080")[name]
    assert own != environment("reward")[name]


@pytest.mark.parametrize("service", ["judge", "aggregator", "reward"])
def test_a_generated_password_is_used_unless_there_is_an_own_one(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("generated")
    monkeypatch.setenv("REDIS_PASSWORD_FILE", str(tmp_path / "password"))
    assert settings(service, monkeypatch).redis_url == f"redis://{service}:generated@redis:6379/0"
    own = {f"REDIS_{service.upper()}_PASSWORD": "own"}
    loaded = settings(service, monkeypatch, **own)
    assert loaded.redis_url == f"redis://{service}:own@redis:6379/0"


def test_judges_send_the_sandboxs_token(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = settings("judge", monkeypatch, SANDBOX_TOKEN="s3cret")
    assert isinstance(judge, JudgeSettings)
    assert judge.sandbox_headers == {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    "tokens",
    [{}, {"aggregator": "s3cret/&\\"}, {"reward": "r/&$1"}, {"aggregator": "a", "reward": "b"}],
    ids=str,
)
def test_prometheus_sends_the_tokens(tokens: dict[str, str], tmp_path: Path) -> None:
    """The script of its container, with other folders and without Prometheus."""
    (script,) = SERVICES["prometheus"]["command"]
    folders = {"/etc/prometheus": str(ROOT / "configs/prometheus"), "/tmp/": f"{tmp_path}/"}
    script = re.sub("/etc/prometheus|/tmp/", lambda match: folders[match[0]], script)
    script = script.replace("$$", "$").replace("exec prometheus", "echo")
    variables = {f"{job.upper()}_TOKEN": token for job, token in tokens.items()}
    done = subprocess.run(
        ["sh", "-ec", script],
        env={"PATH": os.environ["PATH"], "AGGREGATOR_TOKEN": "", "REWARD_TOKEN": "", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    used = re.findall(r"--config\.file=(\S+)", done.stdout)[0]
    jobs = yaml.safe_load(Path(used).read_text())["scrape_configs"]
    sent = {job["job_name"]: job["authorization"] for job in jobs if "authorization" in job}
    assert sent == {job: {"credentials_file": f"{tmp_path}/{job}.token"} for job in tokens}
    for job, token in tokens.items():
        assert (tmp_path / f"{job}.token").read_text() == token
        assert (tmp_path / f"{job}.token").stat().st_mode & 0o077 == 0
