"""Request and response models of the API about runs over time: performance, history and gates."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.analysis.bottleneck import Part
from shared.run_record import RunState

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
GateOutcome = Literal["pass", "fail", "undecided"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatasetPoint(_Answer):
    """Figures of a data set in one run, as published or, of a run in progress, so far.

    A figure that is not known is None. Tokens and judging seconds per solved are those of all
    samples by accepted sample; the rates are by active second of the run.
    """

    planned: Count
    judged: Count
    accepted_at_1: Share | None
    accepted_at_1_ci95: Interval | None
    accepted_at_1_bounds: Interval | None
    pass_ratio_mean: Share | None
    pass_ratio_mean_ci95: Interval | None
    tokens_per_problem: float | None
    tokens_per_solved: float | None
    judge_seconds_per_solved: float | None
    judge_seconds: float | None
    tokens_per_second: float | None
    samples_per_second: float | None


class HistoryRun(_Answer):
    """A run in a trend. Times are Unix seconds, ``active_seconds`` is a duration."""

    run: str
    name: str | None
    model: str | None
    state: RunState | None
    started_at: float | None
    finished_at: float | None
    active_seconds: float | None
    datasets: dict[str, DatasetPoint]


class HistoryGroup(_Answer):
    """Runs of one measurement, in brief; ``models`` and ``names`` are the latest few."""

    protocol: str
    runs: Count
    datasets: list[str]
    models: list[str]
    names: dict[str, str]
    started_at: float | None
    latest_at: float | None


class Difference(_Answer):
    """A setting in which another measurement differs from this one."""

    what: str
    here: str
    there: str


class OtherGroup(_Answer):
    """Runs of another measurement, with what differs; ``more`` differences are not listed."""

    group: HistoryGroup
    differences: list[Difference]
    more: Count


class History(_Answer):
    """Runs of one measurement, the earliest first, and those of others apart from them.

    ``left_out`` counts the earliest runs if there are too many.
    """

    group: HistoryGroup
    runs: list[HistoryRun]
    left_out: Count
    others: list[OtherGroup]


class HistoryAnswer(_Answer):
    """All measurements, that of the latest run first, and the history of the one asked for.

    ``unreadable`` says of runs by id why their record cannot be read. ``policy`` is the name of the
    gate's policy, None if there is none.
    """

    groups: list[HistoryGroup]
    history: History | None
    unreadable: dict[str, str]
    policy: str | None


class HistoryQuery(BaseModel):
    """The measurement whose runs are wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str | None = Field(default=None, min_length=1, max_length=64)


class GateQuery(BaseModel):
    """A run, and the one that it is checked against."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: str = Field(min_length=1, max_length=1000)
    run: str = Field(min_length=1, max_length=1000)


class GateFinding(_Answer):
    """A rule of the gate with the observed value; ``dataset`` is empty for a general premise."""

    dataset: str
    rule: str
    limit: str
    found: str
    outcome: GateOutcome
    why: str


class GateAnswer(_Answer):
    """The gate's verdict on a run; ``outcome`` is None where ``reason`` says why there is none."""

    policy: str | None
    outcome: GateOutcome | None
    reason: str | None
    findings: list[GateFinding]


class PerformanceAnswer(_Answer):
    """Series over at most 300 buckets of ``width`` seconds from ``start`` (Unix) on.

    ``in_flight``: mean number of requests to the generator; ``tokens``: output tokens per second;
    ``generated`` and ``judged``: samples; ``waiting``: samples that were generated and not judged
    at the end of the bucket; ``programs``: mean number of programs in the sandbox; ``timeouts``:
    verdicts that are time-outs; ``workers``: judge workers that gave a verdict. A series that is
    not known is empty; ``start`` is None if no time is. ``slots`` are the programs that the sandbox
    runs at a time, where that is recorded. ``waits_for`` names the slower part of the run, and
    ``sentence`` tells with figures what to add. ``notes`` say what cannot be shown.
    """

    start: float | None
    width: float | None
    in_flight: list[Amount]
    tokens: list[Amount]
    generated: list[Count]
    waiting: list[Count]
    programs: list[Amount]
    judged: list[Count]
    timeouts: list[Count]
    workers: list[Count]
    slots: Count | None
    waits_for: Part
    sentence: str
    notes: list[str]
