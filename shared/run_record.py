"""Run record: the versioned content of ``run.json`` and of a run's meta data in the ledger.

A run has facts that the user gave (name, configuration, output folder), facts that were found
(model, prompts, data files, versions), a state, and results. :class:`RunMeta` is what the ledger
holds while a run is in progress; :class:`RunRecord` is what is published.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_serializer

from shared.analysis.statistics import Metrics
from shared.config import Config
from shared.errors import OutputError
from shared.plan import PlannedDataset
from shared.protocol import Protocol
from shared.schemas import describe
from shared.statuses import FinalStatus

VERSION = 2

JsonObject = dict[str, JsonValue]


class RunState(StrEnum):
    """The life of a run.

    ``RUNNING``: samples lack a completion or a verdict. ``JUDGED``: nothing is owed, the artifacts
    are still to be written. ``COMPLETE`` and ``INCOMPLETE``: the artifacts are written, and every
    sample was judged, or some could not be. ``FAILED``: the artifacts could not be written, for the
    reason in ``publish_error``.
    """

    RUNNING = "running"
    JUDGED = "judged"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    FAILED = "failed"

    @property
    def published(self) -> bool:
        return self in (RunState.COMPLETE, RunState.INCOMPLETE)

    @property
    def final(self) -> bool:
        """Whether nothing changes until another session resumes the run."""
        return self.published or self is RunState.FAILED


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PromptTemplate(_Part):
    template: str
    sha256: str


class SystemPrompt(_Part):
    text: str
    sha256: str


class DataLockCheck(_Part):
    """The lock that the data files were checked against; ``path`` is None where there was none."""

    path: str | None = None
    canonical_version: str | None = None
    differences: list[str] = Field(default_factory=list)


class SandboxFacts(_Part):
    """The embedded sandbox: its isolation, and what the machine did not allow."""

    isolation: str | None = None
    identity: str | None = None
    missing: list[str] = Field(default_factory=list)
    tried: dict[str, str] = Field(default_factory=dict)
    concurrency: int | None = None
    warning: str | None = None


class ParentRun(_Part):
    """The run whose completions were judged again."""

    run: str | None = None
    output: str
    not_generated: int = 0


class DatasetRecord(_Part):
    """A data set of the run; ``sha256`` covers ids, prompts and tests of its problems in order."""

    dataset: str
    sha256: str
    problems: int
    samples: int

    @classmethod
    def of(cls, planned: PlannedDataset) -> Self:
        return cls(
            dataset=planned.name,
            sha256=planned.sha256,
            problems=planned.problems,
            samples=len(planned.owed),
        )


class UnjudgedSample(_Part):
    sample: str
    reason: str | None = None


class QaLogRecord(_Part):
    """A QA log: how many samples of each status were wanted, chosen, and stand in for others."""

    file: str
    wanted: dict[FinalStatus, int] = Field(default_factory=dict)
    chosen: dict[FinalStatus, int] = Field(default_factory=dict)
    filled: dict[FinalStatus, int] = Field(default_factory=dict)


class WandbRecord(_Part):
    """The results in Weights & Biases, or the reasons for which they are not there."""

    mode: Literal["online", "offline", "none"]
    run_id: str | None = None
    wandb: str | None = None
    url: str | None = None
    path: str | None = None
    sync: str | None = None
    online_error: str | None = None
    offline_error: str | None = None


class Given(_Part):
    """Facts given by the user, and the identity that follows from them.

    ``protocol``, the data sets' hashes and ``source`` (of completions that exist already: a file's
    hash, or ``recorded``) make the ``fingerprint``.
    """

    name: str = ""
    output: str = ""
    config: Config = Config()
    seed: int = 0
    fingerprint: str = ""
    protocol: Protocol | None = None
    source: str = ""


class Provenance(_Part):
    """Facts found: what answered, what was asked, and where the data came from.

    ``generator`` is the JSON that the generator reports about itself, of several servers by URL.
    ``left_out`` counts by data set the problems that ``data.exclude_quality`` removed.
    """

    model: str | None = None
    generator: JsonObject | None = None
    prompts: dict[str, PromptTemplate] | None = None
    system_prompt: SystemPrompt | None = None
    sandbox: SandboxFacts | None = None
    data_files: list[str] | None = None
    data_lock: DataLockCheck | None = None
    left_out: dict[str, dict[str, int]] | None = None
    completions: str | None = None
    completions_of_unknown_problems: int | None = None
    problems_without_completion: int | None = None
    parent: ParentRun | None = None
    versions: dict[str, str] | None = None
    git_commit: str | None = None


class Lifecycle(_Part):
    """State, times (Unix seconds, ``active_seconds`` those at work) and counters of a run."""

    state: RunState = RunState.RUNNING
    started_at: float | None = None
    finished_at: float | None = None
    sessions: int = 0
    active_seconds: float = 0.0
    completions_written: int = 0
    generation_requests: int = 0
    verdicts_written: int = 0
    duplicate_verdicts: int = 0
    jobs_redelivered: int = 0


class RunMeta(Lifecycle, Provenance, Given):
    """A run's meta data in the ledger, without its plan."""

    publish_error: str | None = None


class PublishedResults(_Part):
    """The figures of a published run.

    ``metrics`` by data set and name, ``slices`` by data set, dimension, bucket and name.
    """

    metrics: dict[str, Metrics]
    slices: dict[str, dict[str, dict[str, Metrics]]]


class RunRecord(Lifecycle, Provenance, Given):
    """``run.json``: what was run, with what, and how completely.

    ``unjudged`` lists the first samples without a verdict of the judge, ``infra_failures`` counts
    failed requests to the sandbox by kind. ``timeouts_flipped`` of the doubtful time-outs were none
    when they ran again.
    """

    version: Literal[2] = 2
    run: str
    complete: bool = False
    samples: int = 0
    samples_judged: int = 0
    samples_unjudged: int = 0
    unjudged: list[UnjudgedSample] = Field(default_factory=list)
    statuses: dict[FinalStatus, int] = Field(default_factory=dict)
    sandbox_requests: int = 0
    infra_failures: dict[str, int] = Field(default_factory=dict)
    timeouts_confirmed: int = 0
    timeouts_flipped: int = 0
    datasets: list[DatasetRecord] = Field(default_factory=list)
    qa_logs: dict[str, QaLogRecord] = Field(default_factory=dict)
    wandb: WandbRecord | None = None

    @classmethod
    def of(cls, run: str, meta: RunMeta, datasets: Sequence[PlannedDataset]) -> Self:
        """The record of a run that has no results yet."""
        return cls(
            **{name: value for name, value in meta if name in cls.model_fields},
            run=run,
            samples=sum(len(dataset.owed) for dataset in datasets),
            datasets=[DatasetRecord.of(dataset) for dataset in datasets],
        )

    @field_serializer("wandb")
    def _without_what_is_unknown(self, wandb: WandbRecord | None) -> JsonValue:
        return None if wandb is None else wandb.model_dump(mode="json", exclude_none=True)

    @property
    def served_model(self) -> str | None:
        """The model that the servers named, else the configured one."""
        return self.model or self.config.actor_rollout_ref.model.path or None


def read_record(document: object, place: str) -> RunRecord:
    """Read the JSON of a ``run.json`` of this version or the one before.

    Version 1 had no ``version`` and no ``protocol``, which follows from the configuration.

    Raises:
        OutputError: No run record, one of an unknown version, or a field that cannot be used; the
            message begins with ``place``.
    """
    if not isinstance(document, dict):
        raise OutputError(f"{place}: not a run record; name the folder of a run")
    version = document.get("version", 1)
    if version not in (1, VERSION):
        raise OutputError(
            f"{place}: run record of version {version!r}, this Plumbline reads versions 1 and "
            f"{VERSION}; read it with the Plumbline that wrote it, or a newer one"
        )
    try:
        record = RunRecord.model_validate({**document, "version": VERSION})
    except ValidationError as error:
        raise OutputError(f"{place}: not a run record ({describe(error)})") from None
    if "config" not in document:
        raise OutputError(f"{place}: not a run record (config: field required)")
    return record.model_copy(update={"protocol": record.protocol or record.config.protocol()})
