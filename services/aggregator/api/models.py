"""Request and response models of the API, from which the OpenAPI document is generated."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from services.aggregator.api.parameters import (
    checked_choices,
    checked_range,
    choices,
    one_of,
    text_range,
)
from services.aggregator.index.across import Answer
from services.aggregator.index.filters import CHOICES, RANGES, SampleFilter
from services.aggregator.index.history import RunScore
from services.aggregator.index.overview import DatasetFigures
from services.aggregator.index.pages import Sort, SortOrder
from services.aggregator.index.search import PLACES, SHORTEST
from services.aggregator.marks import SampleMarks
from shared.analysis.catalogue import MetricInfo
from shared.analysis.statistics import MetricValue
from shared.run_record import JsonObject, OutageReport, RunState
from shared.schemas import ChatMessage, Generation, Verdict
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


class RunDetail(_Answer):
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


class ExtractedCode(_Answer):
    """The judged code of a completion (may be empty), and how it was extracted."""

    text: str
    found: ExtractionReason


class SampleDetail(_Answer):
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


# A list of values; a comma, a backslash or a leading hyphen of a value is escaped by a backslash.
_List = Annotated[str, Field(min_length=1, max_length=4000)]
Choices = Annotated[_List, AfterValidator(checked_choices)]
Statuses = Annotated[_List, AfterValidator(one_of(FinalStatus))]
Extractions = Annotated[_List, AfterValidator(one_of(ExtractionReason))]
Places = Annotated[_List, AfterValidator(one_of(PLACES))]
Bounds = Annotated[str, Field(max_length=60), AfterValidator(checked_range)]


class FilterQuery(BaseModel):
    """Filters of samples, all of which a sample has to match.

    Several values are separated by commas, of which a sample has to have one; `-` stands for an
    unknown value. Ranges are `MIN..MAX`, `MIN..` or `..MAX`, bounds included: times in seconds,
    `memory` in MiB, `prompt_length` in characters. `q` matches parts of problem id and detail,
    `text` parts of the texts named by `in`, by default all. `group` is a failure's `failure_id`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Statuses | None = None
    dataset: Choices | None = None
    difficulty: Choices | None = None
    tag: Choices | None = None
    detail: Choices | None = None
    finish: Choices | None = None
    extraction: Extractions | None = None
    tokens: Bounds | None = None
    gen_time: Bounds | None = None
    judge_time: Bounds | None = None
    pass_ratio: Bounds | None = None
    cpu: Bounds | None = None
    memory: Bounds | None = None
    attempts: Bounds | None = None
    prompt_length: Bounds | None = None
    flipped: Literal["0", "1"] | None = None
    group: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    q: str | None = Field(default=None, max_length=200)
    text: str | None = Field(default=None, min_length=SHORTEST, max_length=200)
    places: Places | None = Field(default=None, alias="in")

    def filter(self) -> SampleFilter:
        parsed: dict[str, Any] = {name: choices(getattr(self, name) or "") for name in CHOICES}
        parsed |= {name: text_range(getattr(self, name)) for name in RANGES}
        return SampleFilter(
            **parsed,
            flipped=None if self.flipped is None else self.flipped == "1",
            group=self.group,
            q=self.q or "",
            text=self.text or "",
            places=tuple(one for one in PLACES if one in choices(self.places or ",".join(PLACES))),
        )


class SamplesQuery(FilterQuery):
    """Filters, order and position of samples."""

    sort: Sort = "problem"
    order: SortOrder = "asc"
    cursor: str | None = Field(default=None, max_length=4000)
    limit: int = Field(default=50, ge=1, le=200)


class FailuresQuery(FilterQuery):
    """Filters of failures, and the number of groups."""

    limit: int = Field(default=20, ge=1, le=100)
