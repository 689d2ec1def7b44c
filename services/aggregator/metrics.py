"""The aggregator's Prometheus metrics, taken from the folds at scrape time.

Since the folds are rebuilt from the ledger, the counters survive a restart.
"""

from collections import Counter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.aggregator.fold import Runs
from shared.ledger import JudgeQueue
from shared.statuses import FinalStatus


class LedgerCollector(Collector):
    """Verdicts by data set and status, the share accepted, the depth of the judging queue."""

    def __init__(self, runs: Runs, queue: JudgeQueue) -> None:
        self._runs = runs
        self._queue = queue

    def collect(self) -> list[Metric]:
        verdicts = CounterMetricFamily(
            "plumbline_verdicts", "Verdicts by data set and status.", labels=["dataset", "status"]
        )
        accepted = GaugeMetricFamily(
            "plumbline_accepted_ratio", "Share of judged samples accepted.", labels=["dataset"]
        )
        counts: Counter[tuple[str, FinalStatus]] = Counter()
        for fold in self._runs.all().values():
            counts.update(fold.counts())
        for (dataset, status), count in sorted(counts.items()):
            verdicts.add_metric([dataset, status.value], count)
        for dataset in sorted({dataset for dataset, _ in counts}):
            judged = sum(
                n for (d, s), n in counts.items() if d == dataset and s is not FinalStatus.API_ERROR
            )
            if judged:
                accepted.add_metric([dataset], counts[dataset, FinalStatus.SUCCESS] / judged)
        depth = GaugeMetricFamily("plumbline_judge_queue_jobs", "Jobs that wait to be judged.")
        depth.add_metric([], self._queue.rq.count)
        return [verdicts, accepted, depth]
