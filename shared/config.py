"""The configuration of a run: YAML in the plan's layout, overrides, validation."""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from yaml import YAMLError

from shared.errors import ConfigError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrainerConfig(_Section):
    n_gpus_per_node: int = Field(default=1, ge=0)
    nnodes: int = Field(default=1, ge=1)
    device: str = "cuda"


class ModelConfig(_Section):
    path: str = ""
    trust_remote_code: bool = False
    load_tokenizer: bool = True
    lora_rank: int = 0


class RolloutConfig(_Section):
    """verl's rollout keys. The runner uses the sampling ones; the rest is the engine's."""

    name: Literal["vllm", "sglang"] = "vllm"
    mode: str = "async"
    tensor_model_parallel_size: int = Field(default=1, ge=1)
    data_parallel_size: int = Field(default=1, ge=1)
    pipeline_model_parallel_size: int = Field(default=1, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = -1
    do_sample: bool = False
    n: int = Field(default=1, ge=1)
    prompt_length: int = Field(default=4096, ge=1)
    response_length: int = Field(default=2048, ge=1)
    dtype: str = "bfloat16"
    gpu_memory_utilization: float = Field(default=0.8, gt=0, le=1)
    load_format: str = "auto"
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_batched_tokens: int = Field(default=8192, ge=1)
    disable_log_stats: bool = True

    @field_validator("load_format")
    @classmethod
    def _real_weights(cls, load_format: str) -> str:
        if load_format == "dummy":
            raise ValueError("dummy means random weights, and numbers that mean nothing; use auto")
        return load_format


class ActorRolloutRefConfig(_Section):
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()


class DataConfig(_Section):
    """The data sets of the run. ``templates`` maps a data set to the text of its user message."""

    eval_files: list[str] = Field(default_factory=list)
    prompt_key: str = "prompt"
    templates: dict[str, str] = Field(default_factory=dict)
    limit: int | None = Field(default=None, ge=1)


class SandboxConfig(_Section):
    """Where answers run. Time limits are seconds for one test case."""

    url: str | list[str] = "http://localhost:8080/run_code"
    timeout: float = Field(default=10, gt=0)
    memory_limit_mb: int = Field(default=1024, ge=1)


class ReplayConfig(_Section):
    """The backend that answers with recorded completions, and the faults it can be told to show."""

    completions: str = ""
    latency: float = Field(default=0, ge=0)
    error_rate: float = Field(default=0, ge=0, le=1)
    failures: list[str] = Field(default_factory=list)


class GenerationConfig(_Section):
    """Where completions come from. Times are seconds."""

    backend: Literal["openai", "replay"] = "openai"
    base_urls: list[str] = Field(default_factory=list)
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = Field(default=64, ge=1)
    request_timeout: float = Field(default=600, gt=0)
    max_attempts: int = Field(default=5, ge=1)
    seed: int | None = None
    replay: ReplayConfig = ReplayConfig()


class JudgeConfig(_Section):
    """How answers are judged.

    A sandbox call that failed is made again up to ``max_attempts`` times where the sandbox itself
    broke, and for ``retry_budget`` seconds where it was busy or away. A completion whose worker
    died ``max_deliveries`` times over is given up as ``api_error``.
    """

    method: Literal["compute_score"] = "compute_score"
    language: str = "python"
    workers: int | None = Field(default=None, ge=1)
    case_concurrency: int = Field(default=2, ge=1)
    max_attempts: int = Field(default=5, ge=1)
    retry_budget: float = Field(default=120, ge=0)
    max_deliveries: int = Field(default=3, ge=0)
    max_completion_chars: int = Field(default=200_000, ge=1)


class RunConfig(_Section):
    name: str = "phase0"
    seed: int = 0


class OutputConfig(_Section):
    """``dir`` is the folder of this run's artifacts (any fsspec URL)."""

    dir: str = ""


class Config(_Section):
    trainer: TrainerConfig = TrainerConfig()
    actor_rollout_ref: ActorRolloutRefConfig = ActorRolloutRefConfig()
    data: DataConfig = DataConfig()
    sandbox: SandboxConfig = SandboxConfig()
    generation: GenerationConfig = GenerationConfig()
    judge: JudgeConfig = JudgeConfig()
    run: RunConfig = RunConfig()
    output: OutputConfig = OutputConfig()

    @field_validator("run")
    @classmethod
    def _printable_name(cls, run: RunConfig) -> RunConfig:
        if not run.name or "/" in run.name or run.name != run.name.strip():
            raise ValueError("run.name must be a plain file name")
        return run

    @property
    def output_dir(self) -> str:
        return self.output.dir or f"outputs/{self.run.name}"

    @property
    def sandbox_urls(self) -> list[str]:
        urls = [self.sandbox.url] if isinstance(self.sandbox.url, str) else self.sandbox.url
        return [url.removesuffix("/").removesuffix("/run_code") for url in urls]

    def fingerprint(self) -> str:
        """SHA-256 of what decides the numbers; where the parts run and how many, does not count."""
        document = self.model_dump(mode="json")
        document["sandbox"].pop("url")
        for key in (
            "workers",
            "case_concurrency",
            "max_attempts",
            "retry_budget",
            "max_deliveries",
        ):
            document["judge"].pop(key)
        for key in ("base_urls", "concurrency", "request_timeout", "max_attempts", "api_key_env"):
            document["generation"].pop(key)
        document["generation"]["replay"] = {
            "completions": document["generation"]["replay"]["completions"]
        }
        document.pop("output")
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (or none), lay ``key=value`` overrides over it, validate.

    Raises:
        ConfigError: The file cannot be read or parsed, an override is not ``key=value``, or a key
            or value is not valid; the message names the key and the nearest valid one.
    """
    for override in overrides:
        if "=" not in override:
            raise ConfigError(f"override {override!r} is not key=value (e.g. judge.workers=4)")
    try:
        base = OmegaConf.load(path) if path else OmegaConf.create({})
        if not OmegaConf.is_dict(base):
            raise ConfigError(f"{path}: the top level must be a mapping of sections")
        merged = OmegaConf.merge(base, OmegaConf.from_dotlist(list(overrides)))
        document = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror or error}") from None
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"{path or 'overrides'}: {_one_line(error)}") from None
    return validate_config(document)


def validate_config(document: object) -> Config:
    """Validate a plain mapping.

    Raises:
        ConfigError: As :func:`load_config`.
    """
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = _nearest(key)
            lines.append(
                f"unknown config key {key!r}" + (f"; did you mean {near!r}?" if near else "")
            )
        else:
            lines.append(f"config key {key!r}: {problem['msg']} (got {_short(problem['input'])})")
    return "; ".join(lines)


def _nearest(key: str) -> str | None:
    known = list(_keys(Config))
    leaf = key.rsplit(".", 1)[-1]
    exact = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    found = difflib.get_close_matches(key, exact or known, n=1, cutoff=0.0 if exact else 0.5)
    return found[0] if found else None


def _keys(model: type[BaseModel], prefix: str = "") -> Sequence[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names.extend(_keys(field.annotation, f"{prefix}{name}."))
    return names


def _short(value: object) -> str:
    text = "a mapping" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
