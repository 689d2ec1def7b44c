"""The configuration of a run: YAML in the plan's layout, overrides, validation."""

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.checkers import get_checker
from shared.config_files import load_document, validate_document
from shared.errors import ConfigError
from shared.extraction import ExtractionPolicy
from shared.quality import QualityFinding
from shared.result_config import QaLogsConfig, WandbConfig

ENGINES = ("vllm", "sglang")
# Of vLLM and SGLang, without those that make weights up.
LOAD_FORMATS = (
    "auto", "safetensors", "pt", "hf", "npcache", "mistral", "gguf", "bitsandbytes",
    "sharded_state", "tensorizer", "runai_streamer", "runai_streamer_sharded", "fastsafetensors",
    "instanttensor", "modelexpress", "layered", "remote", "remote_instance",
)  # fmt: skip
Method = Literal["batch", "submit", "compute_score"]
_OWN_CHECKERS = {"submit": "lines", "compute_score": "exact"}
BATCH_LANGUAGES = ("python", "cpp")
# What SandboxFusion's /run_code knows.
LANGUAGES = (
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
)  # fmt: skip


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
    """verl's rollout keys. The runner uses the sampling ones; the rest is the engine's.

    ``max_model_len``: tokens of prompt and response together; None for ``prompt_length`` and
    ``response_length``. ``seed`` is the engine's, to which verl adds a replica's rank.
    ``engine_kwargs``: by engine, options of its own, which win over all others.
    """

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
    max_model_len: int | None = Field(default=None, ge=1)
    disable_log_stats: bool = False
    seed: int = 42
    engine_kwargs: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("load_format")
    @classmethod
    def _real_weights(cls, load_format: str) -> str:
        if load_format.startswith("dummy"):  # verl has had several
            raise ValueError(
                f"{load_format} means random weights, and numbers that mean nothing; use auto"
            )
        if load_format not in LOAD_FORMATS:
            raise ValueError(f"no load format; there are {', '.join(LOAD_FORMATS)}")
        return load_format

    @field_validator("engine_kwargs")
    @classmethod
    def _known_engines(cls, given: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for engine in given:
            if engine not in ENGINES:
                raise ValueError(f"{engine!r} is no engine; there are {' and '.join(ENGINES)}")
        for engine, options in given.items():
            if str(options.get("load_format", "")).startswith("dummy"):
                raise ValueError(f"{engine}.load_format: dummy means random weights; use auto")
        return given

    def check_sampling(self) -> None:
        """Refuse samples that would be copies of one another.

        Raises:
            ConfigError: More than one sample per problem at temperature 0.
        """
        if self.n > 1 and self.temperature == 0:
            raise ConfigError(
                f"actor_rollout_ref.rollout.n is {self.n} at temperature 0, where all samples of a "
                "problem are the same; set n=1 or a temperature above 0"
            )

    @property
    def gpus_per_replica(self) -> int:
        return (
            self.tensor_model_parallel_size
            * self.data_parallel_size
            * self.pipeline_model_parallel_size
        )


class ActorRolloutRefConfig(_Section):
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()


class DataConfig(_Section):
    """The data sets of the run.

    ``prompt_key``: the column that holds the prompt. ``templates`` maps a data set to the text of
    its user message. ``system_prompt``: the message before it; empty for none.

    ``lock``: the manifest.lock.json that the files have to agree with; None: none is looked at.
    ``exclude_quality``: problems of which the audit found one of these are left out.
    """

    eval_files: list[str] = Field(default_factory=list)
    prompt_key: str = Field(default="prompt", min_length=1)
    templates: dict[str, str] = Field(default_factory=dict)
    system_prompt: str = ""
    limit: int | None = Field(default=None, ge=1)
    lock: str | None = None
    exclude_quality: list[QualityFinding] = Field(default_factory=list)


class SandboxConfig(_Section):
    """Where answers run. ``timeout`` is seconds for one test case.

    ``max_concurrency`` caps the calls that all workers together make at once to one sandbox; within
    it the number adapts to what the sandbox bears.
    """

    url: str | list[str] = "http://localhost:8080/run_code"
    timeout: float = Field(default=10, gt=0)
    memory_limit_mb: int = Field(default=1024, ge=1)
    max_concurrency: int = Field(default=64, ge=1)


class ReplayConfig(_Section):
    """The backend that answers with recorded completions, and the faults it can be told to show."""

    completions: str = ""
    latency: float = Field(default=0, ge=0)
    error_rate: float = Field(default=0, ge=0, le=1)
    failures: list[str] = Field(default_factory=list)


class VerlConfig(_Section):
    """The backend that runs verl's replicas. Times are seconds.

    ``cpu_engine``: engines on CPUs, whose GPUs exist in Ray's books only. ``ray_address``: the
    cluster to join; None starts one on this machine. A placement has ``placement_timeout`` to be
    had. ``chat_template``: a Jinja file in place of the tokenizer's own. ``python``: with
    ``--embedded``, the interpreter that has verl; empty for the one that runs ``plumb``.
    """

    cpu_engine: bool = False
    ray_address: str | None = None
    placement_timeout: float = Field(default=300, gt=0)
    chat_template: str = ""
    python: str = ""


class GenerationConfig(_Section):
    """Where completions come from. Times are seconds.

    ``backend``: ``openai`` asks the servers at ``base_urls``; the two others do the same, and
    ``--embedded`` starts that backend. ``deterministic``: kernels whose results do not depend on
    what else is in the batch, which cost speed.

    ``concurrency`` caps the requests in flight; within it the number adapts to what the servers
    bear. ``request_timeout`` is for one request, ``deadline`` for one sample from its first request
    on, all its tries and the waiting between them. ``max_attempts`` counts the tries that failed,
    not those that were told to come again later.

    ``seed``: what the samples' own seeds are derived from; None for ``run.seed``. ``stop``: strings
    that end an answer and stay its last characters.
    """

    backend: Literal["openai", "replay", "verl"] = "openai"
    base_urls: list[str] = Field(default_factory=list)
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = Field(default=1024, ge=1)
    # Whoever gives a request up while it is being answered loses the work, and asks for it again at
    # the end of the queue; with a short limit a busy engine never gets anywhere. So the generator
    # gives up first: its router after 3600 s, with an answer (504). The rest is for the way.
    request_timeout: float = Field(default=3900, gt=0, allow_inf_nan=False)
    # Room for three requests that were lost at their very end, and for waiting between them.
    deadline: float = Field(default=4 * 3600, gt=0, allow_inf_nan=False)
    max_attempts: int = Field(default=5, ge=1)
    seed: int | None = None
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    deterministic: bool = False
    replay: ReplayConfig = ReplayConfig()
    verl: VerlConfig = VerlConfig()


class DatasetJudgeConfig(_Section):
    """How the answers of one data set are judged; what is not given is as for all of them.

    ``checker`` is one of ``shared.checkers``, or None for the method's own: ``tokens`` for
    ``batch``, ``exact`` for ``compute_score``, SandboxFusion's ``lines`` for ``submit``.
    """

    method: Method | None = None
    checker: str | None = None
    language: str | None = None
    extraction: ExtractionPolicy | None = None
    max_timeouts: int | None = Field(default=None, ge=1)


class JudgeConfig(_Section):
    """How answers are judged. Times are seconds.

    ``sandbox.timeout`` are CPU seconds of a case for ``batch``, wall-clock seconds for the others.
    A case that ends within ``cpu_grace`` times that limit, or is stopped after ``wall_factor``
    times it, has its time-out confirmed (``confirm_timeouts``) with the sandbox to itself.
    ``max_timeouts``: after so many time-outs an answer's remaining cases count as timed out.
    ``call_seconds``: a sandbox call of ``batch`` begins no further case after that; what is left
    goes into the next call.

    A sandbox call that failed is made again up to ``max_attempts`` times where the sandbox itself
    broke, and for ``retry_budget`` seconds where it was busy or away. A completion whose worker
    died ``max_deliveries`` times over is given up as ``api_error``.
    """

    method: Method = "batch"
    checker: str | None = None
    language: str = "python"
    extraction: ExtractionPolicy = ExtractionPolicy.LAST
    verl_native: bool = False
    confirm_timeouts: bool = True
    max_timeouts: int | None = Field(default=None, ge=1)
    cpu_grace: float = Field(default=1.25, ge=1)
    wall_factor: float = Field(default=3, ge=1)
    compile_timeout: float = Field(default=30, gt=0)
    call_seconds: float = Field(default=60, gt=0)
    max_output_mb: int = Field(default=16, ge=1, le=64)
    max_processes: int = Field(default=64, ge=1)
    max_completion_chars: int = Field(default=200_000, ge=1)
    datasets: dict[str, DatasetJudgeConfig] = Field(default_factory=dict)
    workers: int | None = Field(default=None, ge=1)
    case_concurrency: int = Field(default=2, ge=1)
    max_attempts: int = Field(default=5, ge=1)
    retry_budget: float = Field(default=120, ge=0)
    max_deliveries: int = Field(default=3, ge=0)

    def for_dataset(self, name: str) -> Self:
        """The settings for one data set.

        Raises:
            ValueError: What the data set has of its own does not go with the rest.
        """
        if name not in self.datasets:
            return self
        own = self.datasets[name].model_dump(exclude_none=True)
        merged = {**self.model_dump(exclude={"datasets"}), **own}
        if "method" in own and "checker" not in own:
            merged["checker"] = None  # that was for the other method
        return type(self).model_validate(merged)

    def with_method(self, method: Method) -> Self:
        """The same with another method for all data sets, and that method's own checker."""
        if method == self.method and not self.datasets:
            return self
        document = self.model_dump()
        document |= {"method": method, "checker": None}
        for own in document["datasets"].values():
            own |= {"method": None, "checker": None}
        return type(self).model_validate(document)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.checker is not None:
            get_checker(self.checker)
        own = _OWN_CHECKERS.get(self.method)
        if own and self.checker not in (None, own):
            raise ValueError(f"{self.method} compares by {own!r} alone, not by {self.checker!r}")
        if self.language not in LANGUAGES:
            near = difflib.get_close_matches(self.language.lower(), LANGUAGES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"SandboxFusion has no language {self.language!r}{hint}")
        if self.method == "batch" and self.language not in BATCH_LANGUAGES:
            raise ValueError(
                f"batch judges {' and '.join(BATCH_LANGUAGES)}; for {self.language!r} take the "
                "method submit or compute_score"
            )
        if self.verl_native and (self.method, self.language) != ("compute_score", "python"):
            raise ValueError("verl_native goes with method compute_score and language python alone")
        for name in self.datasets:
            try:
                self.for_dataset(name)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"datasets.{name}: {reason}") from None
        return self


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
    qa_logs: QaLogsConfig = QaLogsConfig()
    wandb: WandbConfig = WandbConfig()
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
        document["data"].pop("lock")
        for key in ("url", "max_concurrency"):
            document["sandbox"].pop(key)
        for key in (
            "workers",
            "case_concurrency",
            "max_attempts",
            "retry_budget",
            "max_deliveries",
        ):
            document["judge"].pop(key)
        for key in (
            "base_urls",
            "concurrency",
            "request_timeout",
            "deadline",
            "max_attempts",
            "api_key_env",
        ):
            document["generation"].pop(key)
        for key in ("ray_address", "placement_timeout", "python"):
            document["generation"]["verl"].pop(key)
        document["generation"]["replay"] = {
            "completions": document["generation"]["replay"]["completions"]
        }
        for key in ("qa_logs", "wandb", "output"):
            document.pop(key)
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (or none), lay ``key=value`` overrides over it, validate.

    Raises:
        ConfigError: The file cannot be read or parsed, an override is not ``key=value``, or a key
            or value is not valid; the message names the key and the nearest valid one.
    """
    return validate_config(load_document(path, overrides))


def validate_config(document: object) -> Config:
    """Validate a plain mapping.

    Raises:
        ConfigError: As :func:`load_config`.
    """
    return validate_document(Config, document)
