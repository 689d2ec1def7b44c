"""The generator of an embedded run: which interpreter it needs, its settings, its patience."""

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from shared.config import Config
from shared.files import write_text

_PREFIX = "PLUMBLINE_GENERATOR_"
# What engines, Ray and the Hugging Face hub are told through the environment.
_ENGINE_VARIABLES = (
    "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "VLLM_", "SGLANG_", "CUDA_", "NVIDIA_", "NCCL_",
    "RAY_", "TORCH", "OMP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GeneratorProcess:
    """How to start it. Times are seconds.

    Attributes:
        python: The interpreter.
        settings: Environment variables of its own.
        death_signal: What it gets when the command dies.
        ready: How long until it can answer.
        grace: How long its end may take.
    """

    python: str = sys.executable
    settings: dict[str, str] = field(default_factory=dict)
    death_signal: signal.Signals = signal.SIGKILL
    ready: float = 60.0
    grace: float = 5.0


def generator_process(config: Config, state: Path) -> GeneratorProcess:
    """``state`` is the folder in which a backend finds the run's configuration."""
    if config.generation.backend == "verl":
        return _verl(config, state)
    return GeneratorProcess(settings=_replay_settings(config))


def _verl(config: Config, state: Path) -> GeneratorProcess:
    document = state / "generator.json"
    write_text(document, config.model_dump_json(indent=1))
    passed = {k: v for k, v in os.environ.items() if k.startswith(_ENGINE_VARIABLES)}
    settings = {_PREFIX + "BACKEND": "verl", _PREFIX + "CONFIG": str(document)}
    python = config.generation.verl.python
    return GeneratorProcess(
        # Not resolved: a virtual environment's interpreter is a link that has to be called as such.
        python=str(Path(python).expanduser().absolute()) if python else sys.executable,
        settings=passed | settings,
        death_signal=signal.SIGTERM,  # it has engines to end
        ready=3600.0,
        grace=60.0,
    )


def _replay_settings(config: Config) -> dict[str, str]:
    replay = config.generation.replay
    settings = {
        "BACKEND": config.generation.backend,
        "MODEL": config.generation.model or "replay",
        "REPLAY_COMPLETIONS": replay.completions,
        "REPLAY_LATENCY": str(replay.latency),
        "REPLAY_ERROR_RATE": str(replay.error_rate),
        "REPLAY_FAILURES": ",".join(replay.failures),
    }
    return {_PREFIX + name: value for name, value in settings.items() if value}
