"""What the index says in Prometheus metrics, at scrape time.

Counters and histograms are kept in the index (``services.aggregator.index.counting`` says what
they count), so they survive a restart and never fall, whatever becomes of runs and verdicts.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from services.aggregator.index import Database
from services.aggregator.index.counting import BUCKETS, MOST_DATASETS, MOST_REASONS, OTHER, admit
from services.aggregator.index.overview import IndexedRun, all_runs
from shared.analysis.statistics import ratio
from shared.run_record import RunState
from shared.service.logs import get_logger
from shared.statuses import FinalStatus

log = get_logger(__name__)

Counts = dict[str, dict[tuple[str, str], float]]

_COUNTERS = {
    "verdicts": ("Verdicts written, each judging again counted.", ["dataset", "status"]),
    "infra_failures": ("Failed requests and other trouble of ours, by class.", ["reason"]),
    "unreadable_entries": ("Entries of streams that could not be read.", []),
}
# What sandboxes and generators usually fail with.
_USUAL_REASONS = ("http_429", "http_500", "http_502", "http_503", "http_504", "read_timeout", OTHER)
_HISTOGRAMS = {
    "pass_ratio": "Cases passed / cases, of each verdict on an answer.",
    "judge_seconds": "Judging time of each verdict on an answer, its cases added up.",
    "generation_seconds": "Time of the request that gave each completion.",
    "output_tokens": "Tokens of each completion.",
}


class IndexCollector(Collector):
    """What the index says; of runs that are gone only counters are left."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        try:
            with self._database.read() as connection:
                counts, runs = _counts(connection), all_runs(connection)
        except sqlite3.OperationalError as error:
            log.warning("the index does not answer a scrape", reason=str(error))
            return
        yield from _counters(_from_zero(counts, runs))
        yield from _histograms(counts)
        yield from _samples(runs, {dataset for dataset, _ in counts.get("verdicts", {})})
        yield from _progress(runs)


def _counts(connection: sqlite3.Connection) -> Counts:
    counts: Counts = defaultdict(dict)
    for metric, dataset, label, value in connection.execute("SELECT * FROM counters"):
        counts[metric][dataset, label] = value
    return counts


def _from_zero(counts: Counts, runs: list[IndexedRun]) -> Counts:
    """The same with the zeros before the first ones.

    Prometheus sees no increase in a counter that begins with a one, so a lone sample without a
    verdict would go by unnoticed.
    """
    known = {dataset for dataset, _ in counts.get("verdicts", {})}
    datasets = {name for run in runs for name in run.datasets}
    labels = known | {admit(name, known, MOST_DATASETS) for name in sorted(datasets)}
    verdicts = {(label, status.value): 0.0 for label in labels for status in FinalStatus}
    reasons = {reason for _, reason in counts.get("infra_failures", {})}
    failures = {("", admit(name, reasons, MOST_REASONS)): 0.0 for name in _USUAL_REASONS}
    return {
        **counts,
        "verdicts": {**verdicts, **counts.get("verdicts", {})},
        "infra_failures": {**failures, **counts.get("infra_failures", {})},
    }


def _counters(counts: Counts) -> Iterator[Metric]:
    for name, (text, labels) in _COUNTERS.items():
        family = CounterMetricFamily(f"plumbline_{name}", text, labels=labels)
        found = counts.get(name, {} if labels else {("", ""): 0.0})
        for (dataset, label), value in sorted(found.items()):
            family.add_metric([part for part in (dataset, label) if part][: len(labels)], value)
        yield family
    tokens = CounterMetricFamily(
        "plumbline_generated_tokens", "Tokens of all completions.", labels=["dataset"]
    )
    for (dataset, _), value in sorted(counts.get("output_tokens_sum", {}).items()):
        tokens.add_metric([dataset], value)
    yield tokens


def _histograms(counts: Counts) -> Iterator[Metric]:
    for name, text in _HISTOGRAMS.items():
        family = HistogramMetricFamily(f"plumbline_{name}", text, labels=["dataset"])
        found = counts.get(name, {})
        for dataset in sorted({dataset for dataset, _ in found}):
            total, buckets = 0.0, []
            for number, bound in enumerate((*BUCKETS[name], float("inf"))):
                total += found.get((dataset, str(number)), 0.0)
                buckets.append((_bound(bound), total))
            family.add_metric([dataset], buckets, counts[f"{name}_sum"].get((dataset, ""), 0.0))
        yield family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))


def _samples(runs: list[IndexedRun], known: set[str]) -> Iterator[Metric]:
    """Samples of the runs that there are; a data set has the label that its counters have."""
    states: Counter[tuple[str, str]] = Counter()
    accepted: Counter[str] = Counter()
    for run in runs:
        for dataset in run.datasets:
            label = admit(dataset, known, MOST_DATASETS)
            counts = run.statuses.get(dataset, {})
            errors = sum(n for status, n in counts.items() if status is FinalStatus.API_ERROR)
            verdicts = sum(counts.values())
            planned = run.planned.get(dataset, (0, 0))[1]
            states[label, "judged"] += verdicts - errors
            states[label, "api_error"] += errors
            states[label, "open"] += max(0, planned - verdicts)
            accepted[label] += run.accepted.get(dataset, 0)
    samples = GaugeMetricFamily(
        "plumbline_samples", "Samples of all runs by what they are.", labels=["dataset", "state"]
    )
    share = GaugeMetricFamily(
        "plumbline_accepted_ratio", "Share of judged samples accepted.", labels=["dataset"]
    )
    for (label, state), count in sorted(states.items()):
        samples.add_metric([label, state], count)
        if state == "judged" and count:
            share.add_metric([label], accepted[label] / count)
    yield samples
    yield share


def _progress(runs: list[IndexedRun]) -> Iterator[Metric]:
    running = [run for run in runs if run.state == RunState.RUNNING]
    verdicts = sum(run.verdicts for run in running)
    yield GaugeMetricFamily(
        "plumbline_runs_running", "Runs that a command is at work on.", value=len(running)
    )
    share = ratio(verdicts, sum(run.samples_planned for run in running))
    if share is not None:
        yield GaugeMetricFamily(
            "plumbline_run_progress_ratio",
            "Share of the planned samples of all running runs that have a verdict.",
            value=min(1.0, share),
        )
