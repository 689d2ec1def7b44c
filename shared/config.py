"""Configuration of a run: typed sections, YAML file with overrides, validation."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.checkers import get_checker
from shared.config_files import load_document, overridden_keys, validate_document
from shared.errors import ConfigError
from shared.harness.languages import PROGRAMS
from shared.programs import Language
from shared.protocol import (
    InProtocol,
    Numerics,
    Operation,
    Protocol,
    Recorded,
    Section,
    Subject,
    redacted_document,
)
from shared.redaction import is_secret_variable, redact_address
from shared.schemas import QualityFinding, RecordedCases
from shared.statuses import FinalStatus
from shared.text import plain_message
from shared.verl_keys import translate

ENGINES = ("vllm", "sglang")
Method = Literal["batch", "submit", "compute_score"]
_OWN_CHECKERS = {"submit": "lines", "compute_score": "exact"}
LANGUAGES = get_args(Language)


class TrainerConfig(Section):
    n_gpus_per_node: Operation[int] = Field(default=1, ge=0)
    """GPUs per node that the backend ``verl`` uses."""
    nnodes: Operation[int] = Field(default=1, ge=1)
    """Nodes that the backend ``verl`` uses; more than one needs ``generation.verl.ray_address``."""
    device: Numerics[str] = "cuda"
    """verl's device name."""


class ModelConfig(Section):
    path: Subject[str] = ""
    """Model folder, or a name on the Hugging Face hub."""
    trust_remote_code: Operation[bool] = False
    """Run code from the model's repository."""
    load_tokenizer: Operation[bool] = True
    """verl's key of the same name."""
    lora_rank: Subject[int] = 0
    """verl's key of the same name; 0 means no LoRA adapter."""


class RolloutConfig(Section):
    """verl's rollout keys. The runner reads the sampling keys, the engine the rest."""

    name: Numerics[Literal["vllm", "sglang"]] = "vllm"
    """Inference engine."""
    mode: Operation[Literal["async", "sync"]] = "async"
    """verl's rollout mode. verl 0.9.1 has ``async`` only, which is used for both."""
    tensor_model_parallel_size: Numerics[int] = Field(default=1, ge=1)
    """GPUs that share each layer of a replica."""
    data_parallel_size: Numerics[int] = Field(default=1, ge=1)
    """Data-parallel ranks within a replica."""
    pipeline_model_parallel_size: Numerics[int] = Field(default=1, ge=1)
    """Pipeline stages of a replica."""
    temperature: InProtocol[float] = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy decoding."""
    top_p: InProtocol[float] = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling: the probability mass to sample from."""
    top_k: InProtocol[int] = -1
    """Sample from this many most likely tokens; -1 means all."""
    do_sample: InProtocol[bool] = False
    """verl's key of the same name."""
    n: InProtocol[int] = Field(default=1, ge=1, le=1_000_000)
    """Samples per problem; more than 1 needs a temperature above 0."""
    prompt_length: InProtocol[int] = Field(default=4096, ge=1)
    """Maximum prompt length in tokens."""
    response_length: InProtocol[int] = Field(default=2048, ge=1)
    """Maximum completion length in tokens."""
    dtype: Numerics[str] = "bfloat16"
    """Data type of the weights."""
    gpu_memory_utilization: Operation[float] = Field(default=0.8, gt=0, le=1)
    """Share of GPU memory for weights and KV cache."""
    load_format: Numerics[str] = "auto"
    """Format from which the engine loads weights. Formats with random weights are refused."""
    enforce_eager: Numerics[bool] = False
    """Disable CUDA graphs."""
    enable_prefix_caching: Numerics[bool] = True
    """Reuse the KV cache of common prompt prefixes."""
    enable_chunked_prefill: Numerics[bool] = True
    """Split long prompts so that they do not delay decoding."""
    max_num_seqs: Numerics[int] = Field(default=256, ge=1)
    """Sequences in one batch of a replica."""
    max_num_batched_tokens: Numerics[int] = Field(default=8192, ge=1)
    """Tokens in one engine step."""
    max_model_len: InProtocol[int | None] = Field(default=None, ge=1)
    """Context length in tokens; null for ``prompt_length`` + ``response_length``."""
    disable_log_stats: Operation[bool] = False
    """Disable the engine's own metrics."""
    seed: Numerics[int] = 42
    """Seed of the engine; verl adds the rank of the replica."""
    engine_kwargs: Subject[dict[str, dict[str, JsonValue]]] = Field(default_factory=dict)
    """Extra engine options by engine name; they override all other keys."""

    @field_validator("load_format")
    @classmethod
    def _real_weights(cls, load_format: str) -> str:
        if load_format.startswith("dummy"):  # verl has had several
            raise ValueError(
                f"{load_format} means random weights, whose results mean nothing; use auto"
            )
        return load_format

    @field_validator("engine_kwargs")
    @classmethod
    def _known_engines(
        cls, options: dict[str, dict[str, JsonValue]]
    ) -> dict[str, dict[str, JsonValue]]:
        for engine, own in options.items():
            if engine not in ENGINES:
                raise ValueError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
            cls._real_weights(str(own.get("load_format", "")))
        return options

    def check_sampling(self) -> None:
        """Refuse several samples per problem that would all be equal.

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
        """Product of the tensor, data and pipeline parallel sizes."""
        return (
            self.tensor_model_parallel_size
            * self.data_parallel_size
            * self.pipeline_model_parallel_size
        )


class ActorRolloutRefConfig(Section):
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()


class DataConfig(Section):
    """The data sets of the run."""

    eval_files: Operation[list[str]] = Field(default_factory=list)
    """Parquet files or folders with the problems."""
    prompt_key: InProtocol[str] = Field(default="prompt", min_length=1)
    """Column that holds the prompt."""
    output_path: Recorded[str | None] = None
    """Parquet file to write with the completions in verl's layout, which ``main_eval`` reads; null
    for none."""
    tokenizer: Operation[str | None] = None
    """Tokenizer (a folder, or a name on the Hugging Face hub) that counts the tokens of recorded
    completions that have no counts."""
    completions: Operation[str] = ""
    """Recorded completions that ``plumb judge`` judges, if it gets no ``--completions``."""
    apply_chat_template_kwargs: InProtocol[dict[str, JsonValue]] = Field(default_factory=dict)
    """Arguments of the chat template, such as ``enable_thinking``; sent as
    ``chat_template_kwargs``."""
    templates: InProtocol[dict[str, str]] = Field(default_factory=dict)
    """User message by data set, with ``{prompt}`` as the placeholder."""
    system_prompt: InProtocol[str] = ""
    """System message; empty for none."""
    limit: InProtocol[int | None] = Field(default=None, ge=1)
    """Use only this many problems of each data set, the first ones."""
    lock: Operation[str | None] = None
    """``manifest.lock.json`` that the data files must match; null for no check."""
    exclude_quality: InProtocol[list[QualityFinding]] = Field(default_factory=list)
    """Skip problems with one of these findings of the data audit."""

    @field_validator("eval_files", mode="before")
    @classmethod
    def _as_list(cls, files: object) -> object:
        return [files] if isinstance(files, str) else files


class SandboxConfig(Section):
    """The sandbox that runs the answers."""

    url: Operation[str | list[str]] = "http://localhost:8080/run_code"
    """URL of the sandbox, or a list of URLs."""
    timeout: InProtocol[float] = Field(default=10, gt=0, le=7 * 24 * 3600)
    """Seconds per test case: CPU time with ``batch``, wall-clock time with the other methods."""
    memory_limit_mb: InProtocol[int] = Field(default=1024, ge=1)
    """Address space per process in MiB."""
    max_concurrency: Operation[int] = Field(default=64, ge=1)
    """Concurrent calls to one sandbox, over all workers; to ours at most two for each program that
    it runs at once."""


class ReplayConfig(Section):
    """The backend that answers with recorded completions."""

    completions: Operation[str] = ""
    """JSON lines file with recorded completions."""
    latency: Operation[float] = Field(default=0, ge=0)
    """Seconds to wait before each answer."""


class VerlConfig(Section):
    """The backend that runs verl's replicas. Times are seconds."""

    cpu_engine: Numerics[bool] = False
    """Run engines on CPUs; Ray then counts GPUs that do not exist."""
    ray_address: Operation[str | None] = None
    """Ray cluster to join; null starts Ray on this machine."""
    placement_timeout: Operation[float] = Field(default=300, gt=0)
    """Seconds to wait until Ray has placed a replica."""
    chat_template: Operation[str] = ""
    """Jinja file that replaces the tokenizer's chat template."""
    allow_random_weights: Operation[bool] = False
    """Use a model although it looks randomly initialized, which ``run.json`` records."""
    python: Operation[str] = ""
    """With ``--embedded``: the interpreter that has verl; empty for the one that runs ``plumb``."""
    env_vars: Numerics[dict[str, str]] = Field(default_factory=dict)
    """Environment variables of the engines, such as ``NCCL_DEBUG``."""

    @field_validator("env_vars")
    @classmethod
    def _no_secrets(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if is_secret_variable(name, value):
                raise ValueError(
                    f"{name} is a secret, which would be recorded in run.json; set it in the "
                    "environment of the service"
                )
        return variables


class GenerationConfig(Section):
    """The source of the completions. Times are seconds."""

    backend: Numerics[Literal["openai", "replay", "verl"]] = "openai"
    """``openai`` uses the servers at ``base_urls``. ``--embedded`` starts ``verl`` or ``replay``
    itself."""
    base_urls: Operation[list[str]] = Field(default_factory=list)
    """URLs of OpenAI-compatible servers of one model."""
    model: Subject[str] = ""
    """Model name to request; empty for the only one that the server offers."""
    api_key_env: Operation[str] = "OPENAI_API_KEY"
    """Environment variable with the API key."""
    concurrency: Operation[int] = Field(default=1024, ge=1)
    """Upper limit of requests in flight. The limit in use adapts below it (AIMD)."""
    # A client that times out discards work in progress and requests it again at the end of the
    # queue, so with a short timeout a busy engine makes no progress.
    request_timeout: Operation[float] = Field(default=3600, gt=0)
    """Seconds for one request."""
    max_attempts: Operation[int] = Field(default=5, ge=1)
    """Failed attempts per sample. A failure counts if other requests have succeeded meanwhile, or
    if the server sent an unusable answer."""
    # A generator that is started again loads its model first, which takes minutes.
    retry_budget: Operation[float] = Field(default=600, ge=0)
    """Seconds without an answer to any request, after which the run ends; the same command resumes
    it."""
    finish_reasons: InProtocol[list[str]] = Field(default_factory=list)
    """Finish reasons of complete answers besides the usual ones; any other one is a failure."""
    reasoning: InProtocol[Literal["judge", "ignore"]] = "judge"
    """Text in ``reasoning_content`` or ``reasoning`` with empty content and the finish reason
    ``stop``: ``judge`` takes it for the answer."""
    max_completion_tokens: Operation[bool] = False
    """Send the limit of tokens as ``max_completion_tokens``."""
    extra_body: InProtocol[dict[str, JsonValue]] = Field(default_factory=dict)
    """Further fields of each request, such as ``reasoning_effort``. Null leaves a field out, such
    as ``temperature``."""
    seed: Subject[int | None] = None
    """Base of the per-sample seeds; null for ``run.seed``."""
    stop: InProtocol[list[Annotated[str, Field(min_length=1)]]] = Field(default_factory=list)
    """Strings that end a completion and remain its last characters."""
    deterministic: Numerics[bool] = False
    """Use kernels whose results do not depend on the batch; they are slower."""
    replay: ReplayConfig = ReplayConfig()
    verl: VerlConfig = VerlConfig()

    @field_validator("extra_body")
    @classmethod
    def _of_one_answer(cls, fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in ("messages", "model", "n", "stream"):
            if name in fields:
                raise ValueError(f"{name} cannot be set here; each request is for one sample")
        return fields


RULES = 1
"""Number of the verdict rules. Raise it with every change that can give an answer another verdict:
extraction, checkers, limits, details of statuses, the harness, or the programs' packages."""


class DatasetJudgeConfig(Section):
    """Judge settings of one data set; unset keys inherit from ``judge``."""

    method: InProtocol[Method | None] = None
    """As ``judge.method``."""
    checker: InProtocol[str | None] = None
    """As ``judge.checker``."""
    language: InProtocol[str | None] = None
    """As ``judge.language``."""
    max_timeouts: InProtocol[int | None] = Field(default=None, ge=1)
    """As ``judge.max_timeouts``; null inherits."""
    problem_limits: InProtocol[bool | None] = None
    """As ``judge.problem_limits``."""


class JudgeConfig(Section):
    """Judging of answers. Times are seconds."""

    rules: InProtocol[int] = RULES
    """Number of the verdict rules. It is recorded and cannot be set; ``plumb rejudge`` judges a
    run by the present rules."""
    method: InProtocol[Method] = "batch"
    """Judging method (see judging.md)."""
    checker: InProtocol[str | None] = None
    """Comparison of outputs; null for the method's own: ``tokens``, ``lines`` or ``exact``."""
    language: InProtocol[str] = "python"
    """Language of the answers, by SandboxFusion's name."""
    confirm_timeouts: InProtocol[bool] = True
    """Run a case with a doubtful time-out again, alone in the sandbox."""
    # Chosen by measurement: docs/benchmarks.md, "Budgets of time-outs".
    max_timeouts: InProtocol[int | None] = Field(default=4, ge=1)
    """Time-outs after which ``batch`` runs no further case of a completion: they are ``not_run``,
    and its pass ratio is a lower bound. Null runs every case."""
    problem_limits: InProtocol[bool] = False
    """Use a problem's own time and memory limit instead of those of ``sandbox``, where the data
    have them."""
    cpu_grace: InProtocol[float] = Field(default=1.25, ge=1)
    """A case is killed at this multiple of its CPU limit; below it a time-out is confirmed first.
    """
    wall_factor: InProtocol[float] = Field(default=3, ge=1)
    """Wall-clock limit of a case as a multiple of ``sandbox.timeout``."""
    compile_timeout: InProtocol[float] = Field(default=30, gt=0)
    """Seconds for compiling."""
    max_cases: InProtocol[int | None] = Field(default=None, ge=1)
    """Judge only the first cases of a problem with standard input and output, so many at most; null
    judges all. verl's own reward counts 10."""
    call_seconds: Operation[float] = Field(default=60, gt=0)
    """Seconds after which a sandbox call of ``batch`` starts no further case."""
    max_output_mb: InProtocol[int] = Field(default=16, ge=1, le=64)
    """Standard output of a case in MiB."""
    max_processes: InProtocol[int] = Field(default=64, ge=1)
    """Processes and threads of a case in addition to the first."""
    max_completion_chars: InProtocol[int] = Field(default=200_000, ge=1)
    """Longer completions are ``syntax_error``."""
    allow_test_errors: Operation[bool] = False
    """Judge although tests of some problems cannot run: their samples are ``api_error``
    (``test_error``), and the run is ``untrusted``."""
    datasets: dict[str, DatasetJudgeConfig] = Field(default_factory=dict)
    """Overrides for one data set, by name: ``method``, ``checker``, ``language``,
    ``max_timeouts``, ``problem_limits``."""
    workers: Operation[int | None] = Field(default=None, ge=1)
    """Judge processes that ``--embedded`` starts; null for one. Each judges
    ``PLUMBLINE_JUDGE_CONCURRENCY`` completions at once: by default 16, or two per slot of the
    sandbox if that is more."""
    max_attempts: Operation[int] = Field(default=5, ge=1)
    """Attempts per sandbox call when the sandbox itself fails."""
    retry_budget: Operation[float] = Field(default=600, ge=0)
    """Seconds of retries while the sandbox is busy or unreachable."""
    canaries: Operation[bool] = True
    """Send canaries, programs with known verdicts, to every sandbox at a run's start and end."""

    @property
    def effective_checker(self) -> str:
        """The checker in effect: the one that is set, else the method's own."""
        return self.checker or _OWN_CHECKERS.get(self.method, "tokens")

    def for_dataset(self, name: str) -> Self:
        """The settings for one data set.

        Raises:
            ValueError: The data set's own settings are inconsistent with the others.
        """
        if name not in self.datasets:
            return self
        own = self.datasets[name].model_dump(exclude_none=True)
        # The general checker belongs to the general method.
        checker = {"checker": None} if "method" in own else {}
        general = self.model_dump(exclude={"datasets"})
        return type(self).model_validate(general | checker | own)

    def with_method(self, method: Method) -> Self:
        """Return a copy with another method for all data sets, and that method's default checker.

        Raises:
            ValueError: The method is inconsistent with the other settings.
        """
        if method == self.method and not self.datasets:
            return self
        document = self.model_dump() | {"method": method, "checker": None}
        for own in document["datasets"].values():
            own |= {"method": None, "checker": None}
        return type(self).model_validate(document)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.checker is not None:
            get_checker(self.checker)
        own = _OWN_CHECKERS.get(self.method)
        if own and self.checker not in (None, own):
            raise ValueError(f"{self.method} has only the checker {own!r}, not {self.checker!r}")
        if self.method == "submit" and self.max_cases is not None:
            raise ValueError("submit judges all cases; with max_cases use batch or compute_score")
        if self.language not in LANGUAGES:
            near = difflib.get_close_matches(self.language.lower(), LANGUAGES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"SandboxFusion has no language {self.language!r}{hint}")
        if self.method == "batch" and self.language not in PROGRAMS:
            raise ValueError(
                f"batch judges {', '.join(PROGRAMS)}; for {self.language!r} use the "
                "method submit or compute_score"
            )
        for name in self.datasets:
            try:
                self.for_dataset(name)
            except ValidationError as error:
                reason = plain_message(error.errors()[0]["msg"])
                raise ValueError(f"datasets.{name}: {reason}") from None
        return self


QaStatus = Literal["success", "wrong_answer", "syntax_error", "runtime_error", "timeout"]
Quota = dict[QaStatus, Annotated[int, Field(ge=0)]]
"""Number of samples of each status in a data set's QA log."""


def _quota(*numbers: int) -> Quota:
    return dict(zip(get_args(QaStatus), numbers, strict=True))


# Defaults by data set.
QUOTAS: dict[str, Quota] = {
    "codecontests_valid": _quota(10, 20, 10, 5, 5),
    "codecontests_test": _quota(6, 12, 6, 3, 3),
    **{name: _quota(4, 8, 4, 2, 2) for name in ("humaneval", "mbpp_reg", "default")},
}


class QaLogsConfig(Section):
    """The QA logs."""

    quotas: Recorded[Annotated[dict[str, Quota], AfterValidator(QUOTAS.__or__)]] = QUOTAS
    """Samples per status by data set, ``default`` for the others (see results.md)."""

    def quota(self, dataset: str) -> dict[FinalStatus, int]:
        quota = self.quotas.get(dataset, self.quotas["default"])
        return {FinalStatus(status): quota.get(status, 0) for status in get_args(QaStatus)}


class WandbConfig(Section):
    """Weights & Biases."""

    enabled: Recorded[bool] = False
    """Log the run to Weights & Biases; without ``WANDB_API_KEY`` as offline files."""
    project: Recorded[str] = Field(default="rlvr_coding_model", min_length=1)
    """W&B project."""
    name: Recorded[str | None] = None
    """Name of the W&B run; null for the name of the run."""
    entity: Recorded[str | None] = None
    """W&B entity."""
    # Both steps must fit into the 600 s for which a run waits to be published.
    timeout: Recorded[float] = Field(default=120, gt=0, le=240)
    """Seconds for writing, and for uploading."""


def _is_plain(name: str) -> bool:
    """Whether a text is a plain file name."""
    plain = name.isprintable() and "/" not in name and name == name.strip()
    return plain and name not in ("", ".", "..")


class RunConfig(Section):
    name: Recorded[str] = ""
    """Name of the run, a plain file name; empty for the name of the output folder."""
    seed: Subject[int] = 0
    """Seed of the QA sample choice and, by default, of generation."""
    verl_keys: Recorded[dict[str, JsonValue]] = Field(default_factory=dict)
    """Keys of verl in the config file that have another name or no effect here (see below); filled
    in when the file is read."""


class OutputConfig(Section):
    """The output folder."""

    dir: Recorded[str] = ""
    """Folder of the artifacts, any fsspec URL; empty for ``outputs/<run.name>``, or
    ``outputs/phase0``."""
    cases: Recorded[RecordedCases] = "none"
    """Cases in ``cases.jsonl.gz`` and on the page of a sample: ``all``, the ``failed`` ones, or the
    ``first`` one of each sample that failed."""


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
    def _plain_file_name(cls, run: RunConfig) -> RunConfig:
        if run.name and not _is_plain(run.name):
            raise ValueError("run.name must be a plain file name")
        return run

    @property
    def name(self) -> str:
        """Name of the run: ``run.name``, or the last part of the output folder."""
        folder = redact_address(self.output.dir).rstrip("/").rpartition("/")[2]
        return self.run.name or (folder if _is_plain(folder) else "phase0")

    @property
    def output_dir(self) -> str:
        """Folder of the artifacts, a path or any fsspec URL."""
        return self.output.dir or f"outputs/{self.name}"

    @property
    def sandbox_urls(self) -> list[str]:
        """Base URLs of the sandboxes, without ``/run_code``."""
        urls = [self.sandbox.url] if isinstance(self.sandbox.url, str) else self.sandbox.url
        return [url.removesuffix("/").removesuffix("/run_code") for url in urls]

    def without_secrets(self) -> Self:
        """Return the config as it may be shown: no address has a user, a password or a token."""
        return type(self).model_validate(redacted_document(self))

    def for_services(self) -> Self:
        """Return the config as other services need it: only the sandbox's address is complete."""
        shown = self.without_secrets()
        return shown.model_copy(update={"sandbox": self.sandbox, "judge": self.judge})

    def protocol(self) -> Protocol:
        """The settings that identify the measurement; its fingerprint is the run's."""
        return Protocol.of(self)


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (or none), apply ``key=value`` overrides, and validate.

    Keys may be verl's (:mod:`shared.verl_keys`); those that differ from ours are recorded in
    ``run.verl_keys``.

    Raises:
        ConfigError: The file cannot be read or parsed, an override is not ``key=value``, or a key
            or value is not valid; the message names the key and the nearest valid one.
    """
    document, verl_keys = translate(
        load_document(path, overrides, missing=True), overridden_keys(overrides)
    )
    if missing := _missing(document):
        raise ConfigError(
            f"{path or 'overrides'}: mandatory and without a value (???): {', '.join(missing)}"
        )
    if verl_keys and isinstance(document, dict) and isinstance(document.get("run", {}), dict):
        document["run"] = {**document.get("run", {}), "verl_keys": verl_keys}
    config = validate_document(Config, document)
    if config.judge.rules != RULES:
        raise ConfigError(
            f"judge.rules cannot be set: this Plumbline judges by rules {RULES}; remove the key"
        )
    return config


def _missing(value: object, key: str = "") -> list[str]:
    """The keys of mandatory values that have none; those of verl that are not used may."""
    if isinstance(value, Mapping) and key != ".run.verl_keys":
        return [path for name, part in value.items() for path in _missing(part, f"{key}.{name}")]
    return [key.removeprefix(".")] if value == "???" else []
