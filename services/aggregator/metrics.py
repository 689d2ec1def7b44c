"""Prometheus metrics: counters of ingested verdicts, gauges of index, judging queue and Redis."""

import re
import sqlite3
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.index.database import Database
from services.aggregator.index.overview import IndexedRun, all_runs
from services.aggregator.index.writer import SampleChange
from shared.analysis.catalogue import BY_KEY
from shared.analysis.statistics import ratio
from shared.ledger import JudgeQueue, VerdictEvent, fail_fast, keys, runs_progress
from shared.ledger.queue import live_workers
from shared.run_record import RunState
from shared.service.logs import get_logger
from shared.service.server import OTHER, LabelValues
from shared.statuses import FinalStatus

log = get_logger(__name__)

_MAX_DATASETS = 50
_MAX_REASONS = 50
# Common failures of sandboxes and generators, exported with 0 from the start.
_USUAL_REASONS = (
    *("http_429", "http_500", "http_502", "http_503", "http_504"),
    *("read_timeout", "ClientConnectorError", "ServerDisconnectedError", "SandboxError", OTHER),
)
# Metrics of the summary of which there is a distribution: its meaning and bounds. A ratio above
# the last bound but one is 1: all cases passed.
_DISTRIBUTIONS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    (
        "pass_ratio_mean",
        "Cases passed / cases, of each verdict on an answer; a lower bound if it was cut.",
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99999, 1.0),
    ),
    (
        "avg_total_judge_time",
        "Judging time of a verdict, summed over its cases.",
        (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    ),
    (
        "avg_gen_time",
        "Duration of the request for a completion.",
        (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600),
    ),
    ("avg_total_gen_tokens", "Tokens of each completion.", tuple(2.0**n for n in range(4, 18))),
)
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


class IngestMetrics:
    """Counters of the verdicts ingested by this process; they restart at zero, as PromQL expects.

    ``plumbline_verdicts`` counts entries of the streams, so a sample that is judged again counts
    again. The others count each verdict and each generation once.
    """

    def __init__(self) -> None:
        self._datasets = LabelValues(_MAX_DATASETS)
        self._reasons = LabelValues(_MAX_REASONS)
        registry = self._registry = CollectorRegistry()
        self._verdicts = Counter(
            "plumbline_verdicts",
            "Verdicts written; a sample judged again counts again.",
            ["dataset", "status"],
            registry=registry,
        )
        self._infra_failures = Counter(
            "plumbline_infra_failures",
            "Failed requests and other infrastructure failures, by class.",
            ["reason"],
            registry=registry,
        )
        self._pass_ratio, self._judge_seconds, self._generation_seconds, self._output_tokens = (
            Histogram(BY_KEY[metric].prometheus, text, ["dataset"], buckets=ends, registry=registry)
            for metric, text, ends in _DISTRIBUTIONS
        )
        for reason in _USUAL_REASONS:
            self._infra_failures.labels(self._reasons.admit(reason))

    def record(self, events: Iterable[VerdictEvent], changes: Iterable[SampleChange]) -> None:
        """Count the entries and changes of a committed batch; call once per batch."""
        for event in events:
            dataset = self.dataset_label(event.sample.dataset)
            self._verdicts.labels(dataset, event.status.value).inc()
        for change in changes:
            self._record_change(change)

    def start_at_zero(self, datasets: Iterable[str]) -> None:
        """Create the verdict counters of data sets before their first verdict.

        Prometheus sees no increase in a counter that first appears as 1, so an alert would miss a
        single ``api_error``.
        """
        for dataset in sorted(datasets):
            for status in FinalStatus:
                self._verdicts.labels(self.dataset_label(dataset), status.value)

    def dataset_label(self, dataset: str) -> str:
        """Return the label of a data set: its name, or ``other`` once there are too many."""
        return self._datasets.admit(dataset)

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()

    def _record_change(self, change: SampleChange) -> None:
        row, dataset = change.row, self.dataset_label(change.row.dataset)
        if change.new_verdict:
            for failure in change.verdict.infra_failures:
                reason = failure.kind if _KIND.fullmatch(failure.kind) else OTHER
                self._infra_failures.labels(self._reasons.admit(reason)).inc()
            if row.final_status is not FinalStatus.API_ERROR:
                self._pass_ratio.labels(dataset).observe(row.pass_ratio)
                self._judge_seconds.labels(dataset).observe(row.total_judge_time)
        if change.new_generation:
            if row.gen_time is not None:
                self._generation_seconds.labels(dataset).observe(row.gen_time)
            if row.output_tokens is not None:
                self._output_tokens.labels(dataset).observe(row.output_tokens)


class AggregatorCollector(Collector):
    """Ingest counters, and gauges of the index and of Redis, computed at scrape time."""

    def __init__(self, redis: Redis, database: Database, ingested: IngestMetrics) -> None:
        self._redis = redis
        self._database = database
        self._ingested = ingested

    def collect(self) -> Iterator[Metric]:
        runs = None
        try:
            with self._database.read() as connection:
                runs = all_runs(connection)
        except sqlite3.OperationalError as error:
            log.warning("index unavailable for a scrape", reason=str(error))
        # Alerts are about the runs at work, not about finished ones that are looked at.
        at_work = [run for run in runs or () if run.folder is None]
        self._ingested.start_at_zero({name for run in at_work for name in run.datasets})
        yield from self._ingested.collect()
        if runs is not None:
            yield from self._samples(at_work)
            yield from _run_progress(at_work)
        try:
            with closing(fail_fast(self._redis)) as redis:
                yield from _queues(redis)
                if runs is not None:
                    yield from _streams(redis, runs)
                # Last, since a Redis of one's own may have users that may not ask for these.
                yield from _memory(redis)
        except RedisError as error:
            log.warning("metrics of Redis unavailable for a scrape", reason=str(error))

    def _samples(self, runs: list[IndexedRun]) -> Iterator[Metric]:
        states: Tally[tuple[str, str]] = Tally()
        accepted: Tally[str] = Tally()
        for run in runs:
            for dataset in run.datasets:
                label, judged = self._ingested.dataset_label(dataset), run.judged(dataset)
                verdicts = sum(run.statuses.get(dataset, {}).values())
                states[label, "judged"] += judged
                states[label, "api_error"] += verdicts - judged
                states[label, "open"] += max(0, run.samples_planned_of(dataset) - verdicts)
                accepted[label] += run.accepted.get(dataset, 0)
        text = "Samples of all runs by state."
        yield _gauges("samples", text, ("dataset", "state"), sorted(states.items()))
        shares = (
            ([label], number / states[label, "judged"])
            for label, number in sorted(accepted.items())
            if states[label, "judged"]
        )
        yield _gauges("accepted_ratio", "Share of judged samples accepted.", ("dataset",), shares)


def _run_progress(runs: list[IndexedRun]) -> Iterator[Metric]:
    # One that was interrupted stays in this state, and nobody waits for it.
    running = [run for run in runs if run.state is RunState.RUNNING and run.facts.get("locked")]
    yield _gauge("runs_running", "Runs that a command is working on.", len(running))
    verdicts = sum(run.verdicts for run in running)
    share = ratio(verdicts, sum(run.samples_planned for run in running))
    if share is not None:
        text = "Share of the planned samples of all running runs that have a verdict."
        yield _gauge("run_progress_ratio", text, min(1.0, share))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"plumbline_{name}", text, value=value)


def _gauges(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """A gauge with a value for each combination of its labels' values."""
    gauge = GaugeMetricFamily(f"plumbline_{name}", text, labels=labels)
    for combination, value in values:
        gauge.add_metric(combination, value)
    return gauge


def _queues(redis: Redis) -> Iterator[Metric]:
    queues = [JudgeQueue(name, redis) for name in (keys.REWARD_QUEUE, keys.JUDGE_QUEUE)]
    text = "Jobs waiting to be judged, each of up to 16 completions, by queue."
    jobs = [([queue.name], queue.count) for queue in queues]
    yield _gauges("judge_queue_jobs", text, ("queue",), jobs)
    text = "Age of the job at the head of a queue; 0 when it is empty."
    ages = [([queue.name], queue.oldest_wait()) for queue in queues]
    yield _gauges("judge_queue_oldest_seconds", text, ("queue",), ages)
    text = "RQ workers that send heartbeats; a judge process has several."
    yield _gauge("judge_workers", text, len(live_workers(redis)))
    text = "Time for which a judge has had its oldest job; 0 without one."
    oldest = max(queue.oldest_lease() for queue in queues)
    yield _gauge("judge_oldest_lease_seconds", text, oldest)


def _streams(redis: Redis, runs: Iterable[IndexedRun]) -> Iterator[Metric]:
    ledger, indexed = runs_progress(redis), {run.run: run.events for run in runs}
    lag = sum(max(0, run.events - indexed.get(run.run, 0)) for run in ledger)
    yield _gauge("stream_lag", "Stream entries that are not in the index yet.", lag)
    newest = max((int(run.last_event.partition("-")[0]) for run in ledger), default=0)
    if newest:
        text = "Unix time of the newest verdict."
        yield _gauge("last_verdict_timestamp_seconds", text, newest / 1000)


def _memory(redis: Redis) -> Iterator[Metric]:
    info = redis.info("memory")
    used, most = int(info["used_memory"]), int(info["maxmemory"])
    # Buffers of the append-only file and of replicas do not count towards maxmemory.
    counted = used - int(info.get("mem_not_counted_for_evict", 0))
    text = "Memory of Redis that counts towards its maxmemory."
    yield _gauge("redis_memory_used_bytes", text, counted)
    if most:
        text = "Redis' maxmemory, beyond which it refuses writes; absent without a limit."
        yield _gauge("redis_memory_max_bytes", text, most)
