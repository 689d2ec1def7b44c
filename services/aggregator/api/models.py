"""What the API answers, and what it may be asked. Their JSON schemas are its description."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from services.aggregator.index import SampleRow
from services.aggregator.index.pages import Order, Sort
from shared.analysis.statistics import MetricValue
from shared.schemas import Generation, Verdict
from shared.statuses import ExtractionReason, FinalStatus

# A count is never negative, a share lies between 0 and 1.
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Answer):
    """What every answer with a status from 400 on says."""

    error: str


class Progress(_Answer):
    """How far a run is, in samples. ``ratio``: share of the planned ones that have a verdict."""

    planned: Count
    generated: Count
    judged: Count
    api_errors: Count
    ratio: Share | None


class RunSummary(_Answer):
    """A run at a glance.

    ``verdicts`` counts samples with a verdict of whatever kind, ``datasets`` gives them by data set
    and status. ``rate`` is verdicts per second over the last minute. Times are Unix seconds.
    """

    run: str
    name: str | None
    state: str | None
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
    """Percentiles over judged samples, interpolated linearly; None where nothing is known."""

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
    """A data set's figures so far; the interval's n is the number of problems."""

    planned_problems: Count
    planned_samples: Count
    statuses: dict[FinalStatus, Count]
    judged: Count
    accepted: Count
    accepted_at_1: Share | None
    accepted_at_1_ci95: list[float] | None
    pass_ratios: PassRatioCounts
    output_tokens: Percentiles
    gen_time: Percentiles
    total_judge_time: Percentiles


class RunDetail(_Answer):
    """A run with its config, versions, what else its meta data say, and its live figures.

    ``metrics`` and ``slices`` are the contents of ``phase0_summary.json`` and ``slices.json``: by
    data set the metrics, and by data set, dimension and bucket a part's; None before publishing.
    """

    summary: RunSummary
    config: dict[str, Any] | None
    versions: dict[str, Any] | None
    facts: dict[str, Any]
    datasets: dict[str, DatasetDetail]
    metrics: dict[str, dict[str, MetricValue]] | None
    slices: dict[str, dict[str, dict[str, dict[str, MetricValue]]]] | None


class SamplePage(_Answer):
    """``next_cursor`` asks for what follows; None where nothing does."""

    samples: list[SampleRow]
    next_cursor: str | None


class ExtractedCode(_Answer):
    """The code of a completion that was judged, and where it was found; empty where none was."""

    text: str
    found: ExtractionReason


class SampleDetail(_Answer):
    """All that is known of a sample; what it does not have yet is None.

    ``code`` is None, too, where nothing was run, where SandboxFusion took it out (``submit``), and
    in verdicts of older versions, which do not record it.
    """

    run: str
    dataset: str
    problem_id: str
    sample_index: Count
    difficulty: str | None
    tags: list[str]
    prompt: str | None
    generation: Generation | None
    code: ExtractedCode | None
    verdict: Verdict | None


class TimelineAnswer(_Answer):
    """Counts per bucket of ``width`` seconds from ``start`` (Unix) on, of samples with a verdict:
    when they were generated and when judged. ``start`` is None where no time is known."""

    start: int | None
    width: int | None
    generated: list[Count]
    judged: list[Count]


class SamplesQuery(BaseModel):
    """Which samples, in which order. ``q`` is looked for in problem id and detail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: FinalStatus | None = None
    dataset: str | None = Field(default=None, max_length=500)
    q: str | None = Field(default=None, max_length=200)
    tag: str | None = Field(default=None, max_length=500)
    difficulty: str | None = Field(default=None, max_length=500)
    sort: Sort = "problem"
    order: Order = "asc"
    cursor: str | None = Field(default=None, max_length=4000)
    limit: int = Field(default=50, ge=1, le=200)
