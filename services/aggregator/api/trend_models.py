"""Request and response models of the API about runs over time: performance, history and gates."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from services.aggregator.api.models import AnswerModel, Count
from services.aggregator.index.history import DatasetTrend
from shared.analysis.differences import Mismatch
from shared.analysis.gate import Finding

GateOutcome = Literal["pass", "fail", "undecided"]


class HistoryRun(AnswerModel):
    """A run in a trend, which began at a Unix time."""

    run: str
    name: str | None
    model: str | None
    started_at: float | None
    datasets: dict[str, DatasetTrend]


class HistoryGroup(AnswerModel):
    """Runs of one measurement, in brief; ``models`` and ``names`` are the latest few."""

    protocol: str
    runs: Count
    datasets: list[str]
    models: list[str]
    names: dict[str, str]


class OtherGroup(AnswerModel):
    """Runs of another measurement, with what differs; ``more`` differences are not listed."""

    group: HistoryGroup
    differences: list[Mismatch]
    more: Count


class History(AnswerModel):
    """Runs of one measurement, the earliest first, and those of others apart from them.

    ``left_out`` counts the earliest runs if there are too many.
    """

    group: HistoryGroup
    runs: list[HistoryRun]
    left_out: Count
    others: list[OtherGroup]


class HistoryAnswer(AnswerModel):
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


class GateAnswer(AnswerModel):
    """The gate's verdict on a run; ``outcome`` is None where ``reason`` says why there is none."""

    policy: str | None
    outcome: GateOutcome | None
    reason: str | None
    findings: list[Finding]
