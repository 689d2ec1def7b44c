"""Request and response models of the API, from which the OpenAPI document is generated."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel

from services.aggregator.index.across import Answer
from services.aggregator.index.history import RunScore
from services.aggregator.index.overview import DatasetFigures
from services.aggregator.marks import SampleMarks
from shared.analysis.catalogue import MetricInfo
from shared.analysis.statistics import MetricValue
from shared.run_record import JsonObject, OutageReport, RunState
from shared.schemas import ChatMessage, Generation, Verdict
from shared.statuses import ExtractionReason, FinalStatus

# A count is not negative; a share is between 0 and 1.
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class AnswerModel(BaseModel):
    """An answer, or a part of one, as the OpenAPI document describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Progress(AnswerModel):
    """Progress of a run in samples. ``ratio``: share of planned samples that have a verdict."""

    planned: Count
    generated: Count
    judged: Count
    api_errors: Count
    ratio: Share | None


class RunSummary(AnswerModel):
    """State and progress of a run.

    ``verdicts`` counts samples with a verdict of any kind, ``datasets`` by data set and status.
    ``scores`` are only in the list of runs.
    ``seconds_left`` is the runner's estimate, ``outages`` the services that it waits for. A run
    whose runner was killed has ``stopped_at``. Times are Unix seconds. ``folder`` has the
    artifacts. ``reading`` says that a finished run is being read from it, and the counts are those
    so far.
    """

    run: str
    name: str | None
    state: RunState | None
    model: str | None
    temperature: float
    n: int
    started_at: float | None
    finished_at: float | None
    verdicts: Count
    datasets: dict[str, dict[FinalStatus, Count]]
    scores: dict[str, RunScore] = {}
    progress: Progress
    seconds_left: float | None
    stopped_at: float | None
    outages: list[OutageReport]
    folder: str | None = None
    reading: bool = False


class RunList(RootModel[dict[str, RunSummary]]):
    """All runs by id."""


class RunDetail(AnswerModel):
    """A run with its config, versions, other metadata, and live figures.

    ``metrics`` and ``slices`` are the contents of ``phase0_summary.json`` (metrics by data set) and
    ``slices.json`` (by data set, dimension and bucket); None before the run is published.
    ``catalogue`` declares the metrics in their order. ``unjudged`` counts the samples that could
    not be judged by reason. ``notes`` say what of the run's folder cannot be read.
    """

    summary: RunSummary
    config: JsonObject | None
    versions: JsonObject | None
    facts: JsonObject
    datasets: dict[str, DatasetFigures]
    metrics: dict[str, dict[str, MetricValue]] | None
    catalogue: list[MetricInfo]
    slices: dict[str, dict[str, dict[str, dict[str, MetricValue]]]] | None
    unjudged: dict[str, Count]
    notes: list[str] = []


class ExtractedCode(AnswerModel):
    """The judged code of a completion (may be empty), and how it was extracted."""

    text: str
    found: ExtractionReason


class SampleDetail(AnswerModel):
    """A sample with prompt, completion, code and verdict; missing parts are None.

    ``messages`` are what the model was sent, as far as the run recorded it. ``quality`` has the
    findings of the data's audit. ``code`` is also None if nothing was run, if
    SandboxFusion extracted it (``submit``), or if an older version wrote the verdict and did not
    record it. ``answers`` are the run's to the same problem, this one included.
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
    verdict: Verdict
    marks: SampleMarks
    answers: list[Answer]
