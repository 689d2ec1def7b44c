"""The metrics of a data set: name, label, unit and formula of each, declared once.

``shared.analysis.metrics`` computes them. The terminal, the page, W&B, Prometheus, the gate,
``plumb accept`` and the exports take names, labels and units from here; docs/metrics.md is
generated from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from shared.analysis.statistics import MetricValue
from shared.statuses import FinalStatus


class Unit(StrEnum):
    """Unit of a metric; shares are 0 to 1."""

    SHARE = "share"
    RATIO = "mean of shares"
    COUNT = "count"
    TOKENS = "tokens"
    SECONDS = "seconds"
    PER_SECOND = "problems per second"


class Group(StrEnum):
    """What a metric is about."""

    QUALITY = "quality"
    ERROR = "error"
    COST = "cost"
    COVERAGE = "coverage"


class Interval(StrEnum):
    """How the 95 % interval ``<key>_ci95`` of a metric is computed."""

    NONE = ""
    WILSON = "Wilson, n = problems"
    BOOTSTRAP = "bootstrap over problems"
    CORRECTED = "Lang & Reiczigel, n = problems"


_PASS_AT = "pass_at_"
_FORMS = {
    Unit.SHARE: "{:.1%}",
    Unit.RATIO: "{:.3f}",
    Unit.COUNT: "{:d}",
    Unit.TOKENS: "{:.0f}",
    Unit.SECONDS: "{:.2f} s",
    Unit.PER_SECOND: "{:.2f}/s",
}


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric.

    Attributes:
        key: Its name in ``phase0_summary.json``; in W&B ``eval/<dataset>/<key>``.
        label: Its name for readers.
        formula: As computed; ``samples`` are those that it is over.
        samples: ``judged`` (those with a verdict), ``accepted`` or ``all``.
        higher_is_better: None if neither is.
        planned: Whether it is one of the metrics that a baseline must have.
        printed: Whether it has a row in the terminal's table.
        only_if: Metric that counts what it is about; without any it is not shown.
        prometheus: What shows the same while a run is at work, by data set.
    """

    key: str
    label: str
    unit: Unit
    group: Group
    formula: str
    samples: str = "judged"
    interval: Interval = Interval.NONE
    higher_is_better: bool | None = None
    planned: bool = False
    printed: bool = False
    only_if: str | None = None
    prometheus: str = ""

    def shown(self, value: MetricValue) -> str:
        """Format a value, or both ends of an interval, for readers."""
        form = _FORMS[self.unit]
        if isinstance(value, list):
            return ", ".join(map(form.format, value))
        return "–" if value is None else form.format(value)


def _error_rate(status: FinalStatus, label: str) -> MetricInfo:
    return MetricInfo(
        f"{status}_rate", label, Unit.SHARE, Group.ERROR,
        f"samples with final_status {status} / samples", interval=Interval.WILSON,
        higher_is_better=False, planned=True, printed=True,
        prometheus=f'plumbline_verdicts_total{{status="{status}"}}',
    )  # fmt: skip


_SPENT = (
    ("tokens", "tokens", Unit.TOKENS),
    ("judge_time", "judging", Unit.SECONDS),
    ("time", "generation and judging", Unit.SECONDS),
)

METRICS: tuple[MetricInfo, ...] = (
    MetricInfo("total_problems", "problems", Unit.COUNT, Group.QUALITY,
        "number of problems",
        samples="all", planned=True, printed=True),
    MetricInfo("total_samples", "samples", Unit.COUNT, Group.COVERAGE,
        "number of samples",
        samples="all"),
    MetricInfo("accepted_at_1", "accepted@1", Unit.SHARE, Group.QUALITY,
        "accepted samples (pass ratio 1.0) / samples",
        interval=Interval.WILSON, higher_is_better=True, planned=True, printed=True,
        prometheus="plumbline_accepted_ratio"),
    MetricInfo("accepted_at_1_bounds", "if unjudged fail, pass", Unit.SHARE, Group.COVERAGE,
        "[accepted, accepted + samples without a verdict] / samples",
        samples="all", printed=True, only_if="api_errors"),
    MetricInfo("accepted_at_1_corrected", "corrected for its tests", Unit.SHARE, Group.QUALITY,
        "(accepted_at_1 + wrong_rejected_rate - 1) / (wrong_rejected_rate + right_accepted_rate - "
        "1), by a certificate of the tests",
        interval=Interval.CORRECTED, higher_is_better=True, printed=True,
        only_if="certified_problems"),
    MetricInfo("wrong_rejected_rate", "tests reject wrong", Unit.SHARE, Group.COVERAGE,
        "true negative rate of the tests: mean over certified problems of wrong programs rejected "
        "/ wrong programs",
        samples="all", higher_is_better=True, printed=True, only_if="certified_problems"),
    MetricInfo("right_accepted_rate", "tests accept right", Unit.SHARE, Group.COVERAGE,
        "true positive rate of the tests: mean over certified problems of right programs accepted "
        "/ right programs",
        samples="all", higher_is_better=True, printed=True, only_if="certified_problems"),
    MetricInfo("certified_problems", "problems certified", Unit.COUNT, Group.COVERAGE,
        "problems of which the certificate knows the content",
        samples="all", higher_is_better=True, printed=True, only_if="certified_problems"),
    MetricInfo("accepted_at_1_single_answer", "with one right answer", Unit.SHARE, Group.QUALITY,
        "accepted_at_1 without problems that have many right answers and no checker",
        interval=Interval.WILSON, higher_is_better=True, printed=True,
        only_if="many_answers_problems"),
    MetricInfo("many_answers_problems", "problems with many", Unit.COUNT, Group.COVERAGE,
        "problems that have many right answers and no checker",
        samples="all", printed=True, only_if="many_answers_problems"),
    MetricInfo("accepted_at_1_untruncated", "without truncated", Unit.SHARE, Group.QUALITY,
        "accepted_at_1 without truncated answers",
        interval=Interval.WILSON, higher_is_better=True, printed=True, only_if="truncated"),
    MetricInfo("truncated", "truncated answers", Unit.COUNT, Group.QUALITY,
        "samples whose answer ended at the limit of tokens (finish reason `length`)",
        higher_is_better=False, printed=True, only_if="truncated"),
    MetricInfo("pass_at_k", "pass@k", Unit.SHARE, Group.QUALITY,
        "mean over problems with at least k samples of 1 - C(n - c, k) / C(n, k), for c "
        "accepted of n; k is each power of two below n, and n; with several samples per "
        "problem only",
        interval=Interval.BOOTSTRAP, higher_is_better=True, printed=True),
    MetricInfo("pass_ratio_mean", "pass ratio, mean", Unit.RATIO, Group.QUALITY,
        "mean over samples of cases passed / cases",
        interval=Interval.BOOTSTRAP, higher_is_better=True, planned=True, printed=True,
        prometheus="plumbline_pass_ratio"),
    MetricInfo("pass_ratio_mean_bounds", "if cases not run pass", Unit.RATIO, Group.QUALITY,
        "[pass_ratio_mean, mean of (cases passed + cases not run) / cases]",
        printed=True, only_if="samples_cut"),
    MetricInfo("samples_cut", "samples cut", Unit.COUNT, Group.QUALITY,
        "samples of which cases were not run (`judge.max_timeouts`)",
        higher_is_better=False, printed=True, only_if="samples_cut"),
    MetricInfo("pass_ratio_p50", "pass ratio, median", Unit.RATIO, Group.QUALITY,
        "median over samples of cases passed / cases",
        higher_is_better=True, planned=True, prometheus="plumbline_pass_ratio"),
    MetricInfo("pass_ratio_p90", "pass ratio, 90th percentile", Unit.RATIO, Group.QUALITY,
        "90th percentile over samples of cases passed / cases",
        higher_is_better=True, planned=True, prometheus="plumbline_pass_ratio"),
    MetricInfo("exec_success_rate", "executed", Unit.SHARE, Group.QUALITY,
        "samples with final_status success or wrong_answer / samples",
        interval=Interval.WILSON, higher_is_better=True, planned=True, printed=True),
    _error_rate(FinalStatus.WRONG_ANSWER, "wrong answer"),
    _error_rate(FinalStatus.RUNTIME_ERROR, "runtime error"),
    MetricInfo("missing_modules", "missing module", Unit.COUNT, Group.ERROR,
        "samples that failed for a module that the sandbox lacks",
        higher_is_better=False, printed=True, only_if="missing_modules"),
    _error_rate(FinalStatus.TIMEOUT, "time-out"),
    _error_rate(FinalStatus.SYNTAX_ERROR, "syntax error"),
    _error_rate(FinalStatus.EMPTY_OUTPUT, "empty output"),
    MetricInfo("api_errors", "not judged", Unit.COUNT, Group.COVERAGE,
        "samples without a verdict",
        samples="all", higher_is_better=False, printed=True,
        prometheus='plumbline_samples{state="api_error"}'),
    MetricInfo("coverage", "coverage", Unit.SHARE, Group.COVERAGE,
        "judged samples / samples",
        samples="all", higher_is_better=True),
    MetricInfo("avg_total_gen_tokens", "tokens per problem", Unit.TOKENS, Group.COST,
        "mean over problems of the output tokens of their samples",
        interval=Interval.BOOTSTRAP, higher_is_better=False, planned=True, printed=True,
        prometheus="plumbline_output_tokens"),
    MetricInfo("avg_gen_time", "generation per problem", Unit.SECONDS, Group.COST,
        "mean over problems of the seconds of their samples' requests",
        interval=Interval.BOOTSTRAP, higher_is_better=False, planned=True,
        prometheus="plumbline_generation_seconds"),
    MetricInfo("avg_total_judge_time", "judge time per problem", Unit.SECONDS, Group.COST,
        "mean over problems of the durations of their samples' cases",
        interval=Interval.BOOTSTRAP, higher_is_better=False, planned=True, printed=True,
        prometheus="plumbline_judge_seconds"),
    MetricInfo("p95_total_judge_time", "judge time, 95th percentile", Unit.SECONDS, Group.COST,
        "95th percentile over problems of the durations of their samples' cases",
        higher_is_better=False, planned=True, prometheus="plumbline_judge_seconds"),
    *(MetricInfo(f"cost_per_solved_{name}", f"{label} per solved", unit, Group.COST,
        f"sum of {label} / accepted samples", samples="accepted", higher_is_better=False,
        planned=True, printed=name == "tokens")
      for name, label, unit in _SPENT),
    *(MetricInfo(f"total_spend_per_solved_{name}", f"all {label} per solved", unit, Group.COST,
        f"sum of {label} / accepted samples", higher_is_better=False)
      for name, label, unit in _SPENT),
    MetricInfo("throughput", "throughput", Unit.PER_SECOND, Group.COST,
        "problems / work_seconds",
        higher_is_better=True, planned=True),
    MetricInfo("run_throughput", "throughput of the run", Unit.PER_SECOND, Group.COST,
        "problems of all data sets / seconds in which the run was at work",
        higher_is_better=True),
    MetricInfo("work_seconds", "time with work", Unit.SECONDS, Group.COVERAGE,
        "seconds in which at least one sample of the set was between its request and its "
        "verdict; of a recorded completion, only its judging; at most those of the run"),
)  # fmt: skip
BY_KEY: Mapping[str, MetricInfo] = {metric.key: metric for metric in METRICS}


def metrics_of(names: Iterable[str]) -> list[MetricInfo]:
    """The metrics of a summary with these keys, in order, with one pass@k for each k."""
    ends = (name.removeprefix(_PASS_AT) for name in names if name.startswith(_PASS_AT))
    ks = sorted({int(end) for end in ends if end.isdecimal()})
    return [
        each
        for metric in METRICS
        for each in (
            [replace(metric, key=f"{_PASS_AT}{k}", label=f"pass@{k}") for k in ks]
            if metric.key == f"{_PASS_AT}k"
            else [metric]
        )
    ]


def keys(group: Group, *, planned: bool = False) -> tuple[str, ...]:
    """The metrics of a group; with ``planned`` those that a baseline must have."""
    return tuple(
        metric.key
        for metric in METRICS
        if metric.group is group and (metric.planned or not planned)
    )
