"""Settings of the services, from the code."""

import re
import tempfile
from functools import cache
from pathlib import Path

import pytest

from services.aggregator.settings import AggregatorSettings
from services.generator.settings import GeneratorSettings
from services.judge.jobs import JudgeSettings
from services.reward.settings import RewardSettings
from services.sandbox.settings import SandboxSettings
from shared.service.settings import RedisSettings, ServiceSettings
from tools.k8s_validate import ROOT

SETTINGS: dict[str, tuple[type[ServiceSettings] | type[RedisSettings], ...]] = {
    "plumbline/judge": (JudgeSettings,),
    "plumbline/aggregator": (AggregatorSettings,),
    "plumbline/reward": (RewardSettings,),
    "plumbline/sandbox": (SandboxSettings,),
    "plumbline/generator": (GeneratorSettings,),
    "plumbline/generator-cpu": (GeneratorSettings,),
    "plumbline/runner": (RedisSettings,),
}

# Read by what the images bring along: the hub's client, vLLM, Ray.
_LIBRARIES = {"HF_HOME", "HF_TOKEN_PATH", "HOME", "VLLM_CACHE_ROOT"}
FOREIGN = {
    "plumbline/aggregator": {"WANDB_API_KEY_FILE", "WANDB_BASE_URL"},  # for Weights & Biases
    "plumbline/generator": {*_LIBRARIES, "PATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"},
    # The key's variable is the one that the config names in generation.api_key_env.
    "plumbline/runner": {"HF_HOME", "HF_TOKEN_PATH", "OPENAI_API_KEY_FILE", "RUN", "SSL_CERT_FILE"},
}


@cache
def known_variables(image: str) -> set[str]:
    names = set(FOREIGN.get(image, set()))
    for kind in SETTINGS.get(image, ()):
        prefix = str(kind.model_config.get("env_prefix", ""))
        for name, field in kind.model_fields.items():
            alias = field.validation_alias
            names.add(alias if isinstance(alias, str) else f"{prefix}{name}".upper())
    if image == "plumbline/runner":
        names |= _command_variables()
    return names


def _command_variables() -> set[str]:
    """Those that the command line reads by itself."""
    text = "\n".join(path.read_text() for path in (ROOT / "services" / "cli").glob("*.py"))
    by_name = re.findall(r'environ\.get\(\s*"(\w+)"', text)
    constants = re.findall(r'^(?:\w+_)?VARIABLE = "(\w+)"', text, re.MULTILINE)
    return {*by_name, *constants}


def load(image: str, environment: dict[str, str]) -> list[str]:
    """Errors of an image's settings about an environment."""
    with tempfile.TemporaryDirectory() as folder:
        password = Path(folder) / "password"
        password.write_text("x")
        variables = {
            name: str(password) if name.endswith("_FILE") else value
            for name, value in environment.items()
        }
        return [
            str(error) for kind in SETTINGS.get(image, ()) for error in _errors(kind, variables)
        ]


def _errors(kind: type, environment: dict[str, str]) -> list[Exception]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            kind()
        except ValueError as error:
            return [error]
    return []
