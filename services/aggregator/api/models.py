"""Request and response models of the API, from which the OpenAPI document is generated."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel

from services.aggregator.index.pages import Sort, SortOrder
from services.aggregator.index.rows import SampleRow
from shared.analysis.statistics import MetricValue
from shared.run_record import JsonObject, RunState
from shared.schemas import CaseRecord, ChatMessage, Generation, RecordedCases, Verdict
from shared.statuses import ExtractionReason, FinalStatus

# A count is not negative; a share is between 0 and 1.
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Answer):
    """Body of every response with a status of 400 or above."""

    error: str


class Progress(_Answer):
    """Progress of a run in samples. ``ratio``: share of planned samples that have a verdict."""

    planned: Count
    generated: Count
    judged: Count
    api_errors: Count
    ratio: Share | None


class RunSummary(_Answer):
    """State and progress of a run.

    ``verdicts`` counts samples with a verdict of any kind, ``datasets`` by data set and status.
    ``rate`` is verdicts per second over the last minute. Times are Unix seconds.
    """

    run: str
    name: str | None
    state: RunState | None
    model: str | None
    started_at: float | None
    finished_at: float | None
    verdicts: Count
    datasets: dict[str, dict[FinalStatus, Count]]
    progress: Progress
    rate: float | None
    seconds_left: float | None


class RunList(RootModel[dict[str, RunSummary]]):
    """All runs by id."""


class Percentiles(_Answer):
    """Percentiles over judged samples, interpolated linearly; None without data."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


class PassRatioCounts(_Answer):
    """Judged samples by pass ratio: exactly 0, ten bins of a tenth between, exactly 1."""

    zero: Count
    bins: Annotated[list[Count], Field(min_length=10, max_length=10)]
    one: Count


class DatasetDetail(_Answer):
    """Figures of a data set so far; n of the confidence interval is the number of problems.

    The pass ratios of ``samples_cut``, some of whose cases were not run, are lower bounds.
    """

    planned_problems: Count
    planned_samples: Count
    statuses: dict[FinalStatus, Count]
    judged: Count
    accepted: Count
    accepted_at_1: Share | None
    accepted_at_1_ci95: list[float] | None
    samples_cut: Count
    pass_ratios: PassRatioCounts
    output_tokens: Percentiles
    gen_time: Percentiles
    total_judge_time: Percentiles


class RunDetail(_Answer):
    """A run with its config, versions, other metadata, and live figures.

    ``metrics`` and ``slices`` are the contents of ``phase0_summary.json`` (metrics by data set) and
    ``slices.json`` (by data set, dimension and bucket); None before the run is published.
    """

    summary: RunSummary
    config: JsonObject | None
    versions: JsonObject | None
    facts: JsonObject
    datasets: dict[str, DatasetDetail]
    metrics: dict[str, dict[str, MetricValue]] | None
    slices: dict[str, dict[str, dict[str, dict[str, MetricValue]]]] | None


class SamplePage(_Answer):
    """A page of samples; ``next_cursor`` is None on the last one."""

    samples: list[SampleRow]
    next_cursor: str | None


class ExtractedCode(_Answer):
    """The judged code of a completion (may be empty), and how it was extracted."""

    text: str
    found: ExtractionReason


class SampleDetail(_Answer):
    """A sample with prompt, completion, code and verdict; missing parts are None.

    ``messages`` are what the model was sent, as far as the run recorded it. ``quality`` has the
    findings of the data's audit. ``code`` is also None if nothing was run, if
    SandboxFusion extracted it (``submit``), or if an older version wrote the verdict and did not
    record it.
    """

    run: str
    dataset: str
    problem_id: str
    sample_index: Count
    difficulty: str | None
    tags: list[str]
    quality: str | None
    prompt: str | None
    messages: list[ChatMessage] | None
    generation: Generation | None
    code: ExtractedCode | None
    verdict: Verdict | None


class CasePage(_Answer):
    """Recorded cases of a sample, those that failed first, then by place.

    ``recorded`` says which cases were recorded: None if none were when the sample was judged.
    ``total`` of them are recorded, ``next`` is the offset of the following page, None on the last.
    """

    recorded: RecordedCases | None
    total: Count
    cases: list[CaseRecord]
    next: Count | None


class CasesQuery(BaseModel):
    """Position in the cases of a sample."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    offset: int = Field(default=0, ge=0, lt=2**31)
    limit: int = Field(default=50, ge=1, le=200)


class TimelineAnswer(_Answer):
    """Samples with a verdict by the time they were generated and judged, in buckets of ``width``
    seconds from ``start`` (Unix) on. ``start`` is None when no time is known."""

    start: int | None
    width: int | None
    generated: list[Count]
    judged: list[Count]


class SamplesQuery(BaseModel):
    """Filter, order and position of samples. ``q`` matches parts of problem id and detail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: FinalStatus | None = None
    dataset: str | None = Field(default=None, max_length=500)
    q: str | None = Field(default=None, max_length=200)
    tag: str | None = Field(default=None, max_length=500)
    difficulty: str | None = Field(default=None, max_length=500)
    sort: Sort = "problem"
    order: SortOrder = "asc"
    cursor: str | None = Field(default=None, max_length=4000)
    limit: int = Field(default=50, ge=1, le=200)
