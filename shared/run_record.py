"""Run plan and run record: samples, provenance, state and results in the ledger and ``run.json``.

A plan has the data sets, problems and samples of a run in the order of its artifacts.
A run has user input (name, configuration, output folder), provenance (model, prompts, data files,
versions), a state, and results. The ledger stores :class:`RunMeta` while a run is in progress;
:class:`RunRecord` is published.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final, Literal, Self

from pydantic import Field, JsonValue, ValidationError, field_serializer

from shared.analysis.statistics import Metrics
from shared.canaries import CanaryRecord, SandboxEnvironment
from shared.certificates import CertifiedTests
from shared.config import Config
from shared.errors import OutputError
from shared.protocol import Protocol
from shared.redaction import redact_values
from shared.schemas import Part, Problem, RecordedCases, SampleId, describe
from shared.statuses import FinalStatus, TokenSource


class PlannedDataset(Part):
    """A data set of the run; ``sha256`` covers ids, prompts and tests of its problems in order.

    ``owed`` lists the problem id and sample index of every planned sample.
    """

    name: str
    sha256: str
    problems: int
    owed: list[tuple[str, int]]


class RunPlan(Part):
    """All samples of a run."""

    datasets: list[PlannedDataset]

    def each_sample(self) -> Iterator[SampleId]:
        """Yield the samples, made as they are asked for: a plan may have a million."""
        for dataset in self.datasets:
            for problem_id, index in dataset.owed:
                yield SampleId(dataset.name, problem_id, index)

    def samples(self) -> list[SampleId]:
        return list(self.each_sample())

    def reduced(self, problems: Collection[tuple[str, str]]) -> Self:
        """The samples of some problems, named by data set and id; ``sha256`` is still of all."""
        datasets = [
            dataset.model_copy(
                update={"owed": [s for s in dataset.owed if (dataset.name, s[0]) in problems]}
            )
            for dataset in self.datasets
        ]
        return self.model_copy(update={"datasets": datasets})

    def fingerprint(self) -> str:
        """Hex SHA-256 over data and samples; equal for runs over the same samples."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def make_plan(problems: Sequence[Problem], indices: Callable[[Problem], Sequence[int]]) -> RunPlan:
    """Plan the samples of problems, grouped by data set in the order of the problems.

    ``indices`` returns the sample indices of a problem.
    """
    groups: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[problem.dataset].append(problem)
    datasets = []
    for name, group in groups.items():
        digest = hashlib.sha256()
        for problem in group:
            for part in (problem.problem_id, problem.prompt, problem.ground_truth):
                digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        samples = [(problem.problem_id, index) for problem in group for index in indices(problem)]
        datasets.append(
            PlannedDataset(name=name, sha256=digest.hexdigest(), problems=len(group), owed=samples)
        )
    return RunPlan(datasets=datasets)


VERSION: Final = 4

JsonObject = dict[str, JsonValue]


class RunState(StrEnum):
    """State of a run's life cycle.

    ``RUNNING``: samples lack a completion or a verdict. ``JUDGED``: every sample has a verdict, but
    the artifacts are not written yet. ``COMPLETE``: the artifacts are written, and every sample was
    judged. ``INCOMPLETE``: the artifacts are written, but some samples could not be judged.
    ``UNTRUSTED``: the artifacts are written, but a sandbox judged a canary wrongly or tests cannot
    run, so the verdicts cannot be trusted. ``FAILED``: the artifacts could not be written, for the
    reason in ``publish_error``.
    """

    RUNNING = "running"
    JUDGED = "judged"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    UNTRUSTED = "untrusted"
    FAILED = "failed"

    @property
    def published(self) -> bool:
        return self in (RunState.COMPLETE, RunState.INCOMPLETE, RunState.UNTRUSTED)

    @property
    def final(self) -> bool:
        """Whether nothing changes until another session resumes the run."""
        return self.published or self is RunState.FAILED


class PromptTemplate(Part):
    template: str
    sha256: str


class SystemPrompt(Part):
    text: str
    sha256: str


class DataLockCheck(Part):
    """Result of checking the data files against a lock; ``path`` is None without a lock."""

    path: str | None = None
    canonical_version: str | None = None
    differences: list[str] = Field(default_factory=list)


class SandboxFacts(Part):
    """The embedded sandbox: its isolation, and the mechanisms that the machine does not permit.

    ``lacking``: packages of the programs' environment that its programs cannot import.
    """

    isolation: str | None = None
    identity: str | None = None
    covered: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)
    tried: dict[str, str] = Field(default_factory=dict)
    concurrency: int | None = None
    environment: SandboxEnvironment | None = None
    lacking: list[str] = Field(default_factory=list)
    warning: str | None = None

    @property
    def warnings(self) -> list[str]:
        """What the user of a run should know of its sandbox."""
        lacking = f"programs cannot import {', '.join(self.lacking)}" if self.lacking else None
        return [text for text in (self.warning, lacking) if text]


class TokenizerRecord(Part):
    """The tokenizer that counted tokens where nobody had; the hash is of its ``tokenizer.json``."""

    name: str
    sha256: str


class ParentRun(Part):
    """The run whose completions were judged again."""

    run: str | None = None
    output: str
    not_generated: int = 0


class DatasetRecord(Part):
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


class StoppedEarly(Part):
    """A run that ended when a policy was decided (``plumb run --until-decided``).

    ``outcome``: of the gate; ``rules``: those that decided it. ``problems`` of ``planned`` problems
    are in the run.
    """

    outcome: str
    rules: list[str]
    policy: str
    baseline: str
    problems: int
    planned: int

    @property
    def described(self) -> str:
        """One line: when, and what decided."""
        return (
            f"stopped early after {self.problems} of {self.planned} problems: {self.outcome} by "
            f"{', '.join(self.rules)} ({self.policy} against {self.baseline})"
        )


class UnjudgedSample(Part):
    sample: str
    reason: str | None = None


class QaLogRecord(Part):
    """A QA log: samples per status that were wanted, chosen, and filled in from other statuses."""

    file: str
    wanted: dict[FinalStatus, int] = Field(default_factory=dict)
    chosen: dict[FinalStatus, int] = Field(default_factory=dict)
    filled: dict[FinalStatus, int] = Field(default_factory=dict)


class CasesRecord(Part):
    """The recorded cases: how many, and of which samples.

    ``samples`` counts the samples with a record by the cases that it has, ``samples_without`` those
    that were judged before ``output.cases`` asked for it.
    """

    file: str
    cases: int = 0
    samples: dict[RecordedCases, int] = Field(default_factory=dict)
    samples_without: int = 0


class WandbRecord(Part):
    """Location of the results in Weights & Biases, or the errors that prevented logging."""

    mode: Literal["online", "offline", "none"]
    run_id: str | None = None
    wandb: str | None = None
    url: str | None = None
    path: str | None = None
    sync: str | None = None
    online_error: str | None = None
    offline_error: str | None = None


class RunInput(Part):
    """User input, and the identity that is derived from it.

    The ``fingerprint`` is over ``protocol``, the plan (data sets' hashes and samples), and
    ``source``, which identifies completions that the config does not: a file's hash, or
    ``recorded``, or empty for a generator's.
    """

    name: str = ""
    output: str = ""
    config: Config = Config()
    seed: int = 0
    fingerprint: str = ""
    protocol: Protocol | None = None
    source: str = ""


class Provenance(Part):
    """Provenance: model, prompts, data files, software versions.

    ``generator`` is the JSON that the generator reports about itself; for several servers, by URL.
    ``left_out`` counts the problems that ``data.exclude_quality`` removed, by data set;
    ``certificates`` has what is known of a data set's tests.
    """

    model: str | None = None
    generator: JsonObject | None = None
    prompts: dict[str, PromptTemplate] | None = None
    system_prompt: SystemPrompt | None = None
    sandbox: SandboxFacts | None = None
    data_files: list[str] | None = None
    data_lock: DataLockCheck | None = None
    left_out: dict[str, dict[str, int]] | None = None
    certificates: dict[str, CertifiedTests] | None = None
    completions: str | None = None
    completions_of_unknown_problems: int | None = None
    problems_without_completion: int | None = None
    tokenizer: TokenizerRecord | None = None
    parent: ParentRun | None = None
    versions: dict[str, str] | None = None
    git_commit: str | None = None

    def tests_of(self, dataset: str) -> CertifiedTests | None:
        """What a certificate says of the tests of a data set."""
        return (self.certificates or {}).get(dataset)

    def without_secrets(self) -> Self:
        """Return a copy whose addresses have no secrets."""
        return type(self).model_validate(_redacted(self.model_dump(mode="json")))


class Lifecycle(Part):
    """State, times (Unix seconds; ``active_seconds`` is a duration) and counters of a run."""

    state: RunState = RunState.RUNNING
    stopped: StoppedEarly | None = None
    started_at: float | None = None
    finished_at: float | None = None
    sessions: int = 0
    active_seconds: float = 0.0
    completions_written: int = 0
    generation_requests: int = 0
    verdicts_written: int = 0
    duplicate_verdicts: int = 0
    jobs_redelivered: int = 0


class OutageReport(Part):
    """A service that a run waits for, since a Unix time."""

    what: str
    since: float
    reason: str = ""


class RunnerReport(Part):
    """The runner's latest report, at a Unix time; the time left is unknown during an outage."""

    at: float
    seconds_left: float | None = None
    outages: list[OutageReport] = Field(default_factory=list)


class RunMeta(Lifecycle, Provenance, RunInput):
    """A run's meta data in the ledger, without its plan."""

    publish_error: str | None = None
    runner: RunnerReport | None = None


class PublishedResults(Part):
    """The figures of a published run.

    ``metrics`` by data set and name, ``slices`` by data set, dimension, bucket and name.
    """

    metrics: dict[str, Metrics]
    slices: dict[str, dict[str, dict[str, Metrics]]]


class RunRecord(Lifecycle, Provenance, RunInput):
    """``run.json``: configuration, provenance, state and completeness of a run.

    ``unjudged`` lists the first samples that could not be judged. ``infra_failures`` counts failed
    requests to the sandbox by kind. ``timeouts_confirmed`` doubtful time-outs ran again;
    ``timeouts_flipped`` of them then finished in time. ``canaries`` is None if none were sent,
    ``cases`` if none are recorded. ``output_tokens_from`` counts the samples whose tokens were not
    counted by an engine.
    """

    version: Literal[4] = VERSION
    run: str
    complete: bool = False
    samples: int = 0
    samples_judged: int = 0
    samples_unjudged: int = 0
    test_errors: int = 0
    unjudged: list[UnjudgedSample] = Field(default_factory=list)
    statuses: dict[FinalStatus, int] = Field(default_factory=dict)
    sandbox_requests: int = 0
    infra_failures: dict[str, int] = Field(default_factory=dict)
    timeouts_confirmed: int = 0
    timeouts_flipped: int = 0
    output_tokens_from: dict[TokenSource, int] = Field(default_factory=dict)
    canaries: CanaryRecord | None = None
    datasets: list[DatasetRecord] = Field(default_factory=list)
    qa_logs: dict[str, QaLogRecord] = Field(default_factory=dict)
    wandb: WandbRecord | None = None
    cases: CasesRecord | None = None

    @classmethod
    def of(cls, run: str, meta: RunMeta, datasets: Sequence[PlannedDataset]) -> Self:
        """Create the record of a run that has no results yet."""
        return cls(
            **{name: value for name, value in meta if name in cls.model_fields},
            run=run,
            samples=sum(len(dataset.owed) for dataset in datasets),
            datasets=[DatasetRecord.of(dataset) for dataset in datasets],
        )

    def document(self) -> JsonObject:
        """The JSON of ``run.json``: no address has a user, a password or a token."""
        config = self.config.without_secrets()
        return _redacted({**self.model_dump(mode="json"), "config": config.model_dump(mode="json")})

    def without_secrets(self) -> Self:
        """Return a copy whose addresses have no secrets."""
        return type(self).model_validate(self.document())

    @field_serializer("wandb")
    def _omit_unset(self, wandb: WandbRecord | None) -> JsonValue:
        return None if wandb is None else wandb.model_dump(mode="json", exclude_none=True)

    @property
    def environments(self) -> list[SandboxEnvironment]:
        """What the programs of the verdicts ran on, as far as sandboxes told it."""
        if self.canaries and self.canaries.environments:
            return self.canaries.environments
        own = self.sandbox and self.sandbox.environment
        return [own] if own else []

    @property
    def distrust(self) -> list[str]:
        """Why the verdicts cannot be trusted: findings of canaries, and tests that cannot run."""
        reasons = list(self.canaries.distrust) if self.canaries else []
        if self.test_errors:
            reasons.append(f"tests cannot run (test_error; samples: {self.test_errors})")
        return reasons

    @property
    def served_model(self) -> str | None:
        """The model that the servers reported, else the configured one."""
        return self.model or self.config.actor_rollout_ref.model.path or None


# Texts that the run's hashes are over, and the config, which knows its addresses.
_VERBATIM = {"config", "protocol", "prompts", "system_prompt", "name", "run"}


def _redacted(document: JsonObject) -> JsonObject:
    return {
        name: value if name in _VERBATIM else redact_values(value)
        for name, value in document.items()
    }


def read_record(document: object, place: str) -> RunRecord:
    """Validate the JSON of a ``run.json``.

    Raises:
        OutputError: The document is not a run record, has another version, or has an invalid
            field; the message begins with ``place``.
    """
    if not (isinstance(document, dict) and "version" in document):
        raise OutputError(f"{place}: not a run record; name the folder of a run")
    remedy = "read it with the Plumbline that wrote it"
    if (version := document["version"]) != VERSION:
        raise OutputError(
            f"{place}: run record of version {version!r}, but this Plumbline reads version "
            f"{VERSION}; {remedy}"
        )
    if "config" not in document:
        raise OutputError(f"{place}: not a run record (config: field required)")
    try:
        return RunRecord.model_validate(document)
    except ValidationError as error:
        cause = f"not a run record that this Plumbline reads ({describe(error)})"
        raise OutputError(f"{place}: {cause}; {remedy}") from None
