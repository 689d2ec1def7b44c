"""Evidence of a finished run, and the findings of acceptance checks on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shared.analysis.statistics import Metrics
from shared.config import Config
from shared.run_record import RunRecord
from shared.schemas import Generation, Verdict
from shared.statuses import FinalStatus, VerdictDetail

BASELINE_SETS: Mapping[str, int] = {
    "codecontests_valid": 117,
    "codecontests_test": 165,
    "humaneval": 164,
    "mbpp_reg": 200,
}
"""Data sets of the baseline, with the number of their problems."""
_NO_CODE = (VerdictDetail.NO_CODE_BLOCK, VerdictDetail.PROSE_ONLY, VerdictDetail.EMPTY)


class Mark(StrEnum):
    """Outcome of a check, or of all of them."""

    PASS = "pass"
    WARNING = "warning"
    FAILURE = "failure"


class Check(StrEnum):
    """Subject of a check; the value is its name in tables, JSON and ``--without``."""

    STATE = "state"
    SETS = "sets"
    VERDICTS = "verdicts"
    CANARIES = "canaries"
    JUDGE = "judge"
    METRICS = "metrics"
    DATA = "data"
    MANIFESTS = "manifests"
    AUDIT = "audit"
    QA_LOGS = "qa-logs"
    WANDB = "wandb"
    PROTOCOL = "protocol"
    MODEL = "model"
    ZERO = "accepted"
    ONE_STATUS = "one-status"
    TRUNCATED = "truncated"
    WITHOUT_CODE = "without-code"
    TIMEOUTS = "time-outs"
    MODULES = "modules"
    TYPICAL = "typical-range"


@dataclass(frozen=True, slots=True)
class AcceptanceFinding:
    """Outcome of a check, for one data set or (``dataset`` empty) the run.

    ``found`` is the figure, ``next_step`` a command or config key; empty if the check passed.
    """

    check: Check
    mark: Mark
    found: str
    next_step: str = ""
    dataset: str = ""


@dataclass
class AnswerCounts:
    """Counts over the samples of one data set.

    ``finished``: samples of which the server said why they end, ``truncated`` of them at the limit
    of tokens.
    """

    statuses: Counter[FinalStatus] = field(default_factory=Counter)
    finished: int = 0
    truncated: int = 0
    without_code: int = 0
    missing_modules: Counter[str] = field(default_factory=Counter)
    problems: set[str] = field(default_factory=set)

    @property
    def judged(self) -> int:
        """Number of samples with a verdict on the answer, which ``api_error`` is not."""
        return self.statuses.total() - self.statuses[FinalStatus.API_ERROR]

    def add(self, verdict: Verdict, generation: Generation | None) -> None:
        """Count a sample; ``generation`` is None if the run has no record of it."""
        self.problems.add(verdict.problem_id)
        self.statuses[verdict.final_status] += 1
        self.without_code += (
            verdict.detail in _NO_CODE or verdict.final_status is FinalStatus.EMPTY_OUTPUT
        )
        if verdict.detail is VerdictDetail.MISSING_MODULE:
            self.missing_modules[verdict.missing_module or "unknown"] += 1
        if generation is not None and generation.finish_reason is not None:
            self.finished += 1
            self.truncated += generation.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class PreparedData:
    """What lies beside the run's data files.

    Attributes:
        folder: Folder of lock, manifests and audit.
        problems: Ids of the manifests' problems by data set.
        training: Training sets among them.
        open_overlaps: Pairs of similar problems of different sets that nobody reviewed.
        reviewed_overlaps: Number of the other pairs.
        has_report: Whether there is an audit report.
        differences: One line for each of these files that is not as in the lock.
    """

    folder: str
    problems: Mapping[str, frozenset[str]]
    training: Sequence[str]
    open_overlaps: Sequence[str]
    reviewed_overlaps: int
    has_report: bool
    differences: Sequence[str]


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run.

    Attributes:
        record: ``run.json``.
        summary: ``{dataset: {metric: value}}``; empty before the run is published.
        answers: Counts by data set.
        unreadable: Messages about files of the run that cannot be read.
        qa_records: Number of readable records by file of ``run.json``'s ``qa_logs``.
        data: What lies beside the data files, or why it is not at hand.
        size: The model's parameters in billions; None if not given.
    """

    record: RunRecord
    summary: Mapping[str, Metrics]
    answers: Mapping[str, AnswerCounts] = field(default_factory=dict)
    unreadable: Sequence[str] = ()
    qa_records: Mapping[str, int] = field(default_factory=dict)
    data: PreparedData | str = "not looked for"
    size: float | None = None

    @property
    def config(self) -> Config:
        return self.record.config

    @property
    def datasets(self) -> list[str]:
        """The run's data sets, those of the baseline first and in its order."""
        own = [dataset.dataset for dataset in self.record.datasets]
        return [*(name for name in BASELINE_SETS if name in own),
                *(name for name in own if name not in BASELINE_SETS)]  # fmt: skip
