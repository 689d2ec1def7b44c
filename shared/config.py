"""The configuration of a run: YAML in the plan's layout, overrides, validation."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from shared.checkers import get_checker
from shared.config_files import load_document, validate_document
from shared.errors import ConfigError
from shared.protocol import (
    InProtocol,
    LeafDifference,
    LeafRole,
    Numerics,
    Operation,
    Protocol,
    Recorded,
    Role,
    Section,
    Subject,
    differences,
    values,
)
from shared.quality import QualityFinding
from shared.result_config import QaLogsConfig, WandbConfig
from shared.statuses import ExtractionPolicy

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


class TrainerConfig(Section):
    n_gpus_per_node: Operation[int] = Field(default=1, ge=0)
    nnodes: Operation[int] = Field(default=1, ge=1)
    device: Numerics[str] = "cuda"


class ModelConfig(Section):
    path: Subject[str] = ""
    trust_remote_code: Operation[bool] = False
    load_tokenizer: Operation[bool] = True
    lora_rank: Subject[int] = 0


class RolloutConfig(Section):
    """verl's rollout keys. The runner uses the sampling ones; the rest is the engine's.

    ``max_model_len``: tokens of prompt and response together; None for ``prompt_length`` and
    ``response_length``. ``seed`` is the engine's, to which verl adds a replica's rank.
    ``engine_kwargs``: by engine, options of its own, which win over all others.
    """

    name: Numerics[Literal["vllm", "sglang"]] = "vllm"
    mode: Operation[str] = "async"
    tensor_model_parallel_size: Numerics[int] = Field(default=1, ge=1)
    data_parallel_size: Numerics[int] = Field(default=1, ge=1)
    pipeline_model_parallel_size: Numerics[int] = Field(default=1, ge=1)
    temperature: InProtocol[float] = Field(default=0.0, ge=0)
    top_p: InProtocol[float] = Field(default=1.0, gt=0, le=1)
    top_k: InProtocol[int] = -1
    do_sample: InProtocol[bool] = False
    n: InProtocol[int] = Field(default=1, ge=1)
    prompt_length: InProtocol[int] = Field(default=4096, ge=1)
    response_length: InProtocol[int] = Field(default=2048, ge=1)
    dtype: Numerics[str] = "bfloat16"
    gpu_memory_utilization: Operation[float] = Field(default=0.8, gt=0, le=1)
    load_format: Numerics[str] = "auto"
    enforce_eager: Numerics[bool] = False
    enable_prefix_caching: Numerics[bool] = True
    enable_chunked_prefill: Numerics[bool] = True
    max_num_seqs: Numerics[int] = Field(default=256, ge=1)
    max_num_batched_tokens: Numerics[int] = Field(default=8192, ge=1)
    max_model_len: InProtocol[int | None] = Field(default=None, ge=1)
    disable_log_stats: Operation[bool] = False
    seed: Numerics[int] = 42
    engine_kwargs: Subject[dict[str, dict[str, JsonValue]]] = Field(default_factory=dict)

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
    def _known_engines(
        cls, given: dict[str, dict[str, JsonValue]]
    ) -> dict[str, dict[str, JsonValue]]:
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


class ActorRolloutRefConfig(Section):
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()


class DataConfig(Section):
    """The data sets of the run.

    ``prompt_key``: the column that holds the prompt. ``templates`` maps a data set to the text of
    its user message. ``system_prompt``: the message before it; empty for none.

    ``lock``: the manifest.lock.json that the files have to agree with; None: none is looked at.
    ``exclude_quality``: problems of which the audit found one of these are left out.
    """

    eval_files: Operation[list[str]] = Field(default_factory=list)
    prompt_key: InProtocol[str] = Field(default="prompt", min_length=1)
    templates: InProtocol[dict[str, str]] = Field(default_factory=dict)
    system_prompt: InProtocol[str] = ""
    limit: InProtocol[int | None] = Field(default=None, ge=1)
    lock: Operation[str | None] = None
    exclude_quality: InProtocol[list[QualityFinding]] = Field(default_factory=list)


class SandboxConfig(Section):
    """Where answers run. ``timeout`` is seconds for one test case.

    ``max_concurrency`` caps the calls that all workers together make at once to one sandbox; within
    it the number adapts to what the sandbox bears.
    """

    url: Operation[str | list[str]] = "http://localhost:8080/run_code"
    timeout: InProtocol[float] = Field(default=10, gt=0)
    memory_limit_mb: InProtocol[int] = Field(default=1024, ge=1)
    max_concurrency: Operation[int] = Field(default=64, ge=1)


class ReplayConfig(Section):
    """The backend that answers with recorded completions, and the faults it can be told to show."""

    completions: Operation[str] = ""
    latency: Operation[float] = Field(default=0, ge=0)
    error_rate: Operation[float] = Field(default=0, ge=0, le=1)
    failures: Operation[list[str]] = Field(default_factory=list)


class VerlConfig(Section):
    """The backend that runs verl's replicas. Times are seconds.

    ``cpu_engine``: engines on CPUs, whose GPUs exist in Ray's books only. ``ray_address``: the
    cluster to join; None starts one on this machine. A placement has ``placement_timeout`` to be
    had. ``chat_template``: a Jinja file in place of the tokenizer's own. ``python``: with
    ``--embedded``, the interpreter that has verl; empty for the one that runs ``plumb``.
    """

    cpu_engine: Numerics[bool] = False
    ray_address: Operation[str | None] = None
    placement_timeout: Operation[float] = Field(default=300, gt=0)
    chat_template: Operation[str] = ""
    python: Operation[str] = ""


class GenerationConfig(Section):
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

    backend: Numerics[Literal["openai", "replay", "verl"]] = "openai"
    base_urls: Operation[list[str]] = Field(default_factory=list)
    model: Subject[str] = ""
    api_key_env: Operation[str] = "OPENAI_API_KEY"
    concurrency: Operation[int] = Field(default=1024, ge=1)
    # Whoever gives a request up while it is being answered loses the work, and asks for it again at
    # the end of the queue; with a short limit a busy engine never gets anywhere. So the generator
    # gives up first: its router after 3600 s, with an answer (504). The rest is for the way.
    request_timeout: Operation[float] = Field(default=3900, gt=0, allow_inf_nan=False)
    # Room for three requests that were lost at their very end, and for waiting between them.
    deadline: Operation[float] = Field(default=4 * 3600, gt=0, allow_inf_nan=False)
    max_attempts: Operation[int] = Field(default=5, ge=1)
    seed: Subject[int | None] = None
    stop: InProtocol[list[Annotated[str, Field(min_length=1)]]] = Field(default_factory=list)
    deterministic: Numerics[bool] = False
    replay: ReplayConfig = ReplayConfig()
    verl: VerlConfig = VerlConfig()


class DatasetJudgeConfig(Section):
    """How the answers of one data set are judged; what is not given is as for all of them.

    ``checker`` is one of ``shared.checkers``, or None for the method's own: ``tokens`` for
    ``batch``, ``exact`` for ``compute_score``, SandboxFusion's ``lines`` for ``submit``.
    """

    method: InProtocol[Method | None] = None
    checker: InProtocol[str | None] = None
    language: InProtocol[str | None] = None
    extraction: InProtocol[ExtractionPolicy | None] = None
    max_timeouts: InProtocol[int | None] = Field(default=None, ge=1)


class JudgeConfig(Section):
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

    method: InProtocol[Method] = "batch"
    checker: InProtocol[str | None] = None
    language: InProtocol[str] = "python"
    extraction: InProtocol[ExtractionPolicy] = ExtractionPolicy.LAST
    verl_native: InProtocol[bool] = False
    confirm_timeouts: InProtocol[bool] = True
    max_timeouts: InProtocol[int | None] = Field(default=None, ge=1)
    cpu_grace: InProtocol[float] = Field(default=1.25, ge=1)
    wall_factor: InProtocol[float] = Field(default=3, ge=1)
    compile_timeout: InProtocol[float] = Field(default=30, gt=0)
    call_seconds: Operation[float] = Field(default=60, gt=0)
    max_output_mb: InProtocol[int] = Field(default=16, ge=1, le=64)
    max_processes: InProtocol[int] = Field(default=64, ge=1)
    max_completion_chars: InProtocol[int] = Field(default=200_000, ge=1)
    datasets: dict[str, DatasetJudgeConfig] = Field(default_factory=dict)
    workers: Operation[int | None] = Field(default=None, ge=1)
    case_concurrency: Operation[int] = Field(default=2, ge=1)
    max_attempts: Operation[int] = Field(default=5, ge=1)
    retry_budget: Operation[float] = Field(default=120, ge=0)
    max_deliveries: Operation[int] = Field(default=3, ge=0)

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


class RunConfig(Section):
    name: Recorded[str] = "phase0"
    seed: Subject[int] = 0


class OutputConfig(Section):
    """``dir`` is the folder of this run's artifacts (any fsspec URL)."""

    dir: Recorded[str] = ""


class Config(Section):
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

    def protocol(self) -> Protocol:
        """The settings that identify the measurement; its fingerprint is the run's."""
        return Protocol.of(self)


@dataclass(frozen=True, slots=True)
class ConfigDifferences:
    """The leaves in which the configurations of two compared runs differ, by their meaning.

    ``protocol``: the runs are not the same measurement. ``subject``: what a comparison is about
    (model, seed). ``numerics``: engine settings that can change low bits of the results.
    """

    protocol: list[LeafDifference]
    subject: list[LeafDifference]
    numerics: list[LeafDifference]


def compare_configs(first: Config, second: Config, datasets: Sequence[str]) -> ConfigDifferences:
    """Compare two configurations over the data sets that both runs have.

    Judge settings are compared as they take effect for each data set, and templates of other data
    sets do not count. A judge setting that differs alike for all data sets is named once.
    """
    ours, theirs = (_protocol_outside_judge(config, datasets) for config in (first, second))
    judged = {
        dataset: differences(*(_effective_judge(config, dataset) for config in (first, second)))
        for dataset in datasets
    }
    return ConfigDifferences(
        protocol=[*differences(ours, theirs), *_by_setting(judged)],
        subject=differences(*(values(config, _is_subject) for config in (first, second))),
        numerics=differences(*(values(config, _is_numerics) for config in (first, second))),
    )


def _is_subject(leaf: LeafRole) -> bool:
    return leaf.subject


def _is_numerics(leaf: LeafRole) -> bool:
    return leaf.numerics


def _in_comparison(leaf: LeafRole) -> bool:
    return leaf.role is Role.PROTOCOL and not leaf.subject


def _protocol_outside_judge(config: Config, datasets: Sequence[str]) -> dict[str, JsonValue]:
    templates = {name: text for name, text in config.data.templates.items() if name in datasets}
    data = config.data.model_copy(update={"templates": templates})
    narrowed = config.model_copy(update={"judge": JudgeConfig(), "data": data})
    return values(narrowed, _in_comparison)


def _effective_judge(config: Config, dataset: str) -> dict[str, JsonValue]:
    effective = config.judge.for_dataset(dataset)
    checker = effective.checker or _OWN_CHECKERS.get(effective.method, "tokens")
    narrowed = effective.model_copy(update={"datasets": {}, "checker": checker})
    return values(narrowed, _in_comparison)


def _by_setting(judged: Mapping[str, Sequence[LeafDifference]]) -> Iterator[LeafDifference]:
    """Name a difference once where all data sets have it, else for each data set."""
    settings = dict.fromkeys(leaf.path for found in judged.values() for leaf in found)
    for path in settings:
        found = {
            name: leaf for name, leaves in judged.items() for leaf in leaves if leaf.path == path
        }
        if len(found) == len(judged) and len({str(leaf) for leaf in found.values()}) == 1:
            leaf = next(iter(found.values()))
            yield LeafDifference(f"judge.{path}", leaf.first, leaf.second)
        else:
            for name, leaf in found.items():
                yield LeafDifference(f"judge.datasets.{name}.{path}", leaf.first, leaf.second)


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
