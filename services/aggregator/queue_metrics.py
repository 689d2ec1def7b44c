"""What only Redis knows in Prometheus metrics, at scrape time: the judging queue, the streams."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.index import Database
from services.aggregator.index.overview import all_runs
from shared.ledger import JudgeQueue, fail_fast, runs_progress
from shared.service.logs import get_logger

log = get_logger(__name__)


class RedisCollector(Collector):
    """What only Redis knows: the judging queue, and how far the index is behind the streams."""

    def __init__(self, redis: Redis, database: Database) -> None:
        self._redis = redis
        self._database = database

    def describe(self) -> list[Metric]:
        """Say nothing beforehand, so that registering asks no server."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            with closing(fail_fast(self._redis)) as redis:
                yield from _queue(JudgeQueue(redis))
                yield from _streams(redis, self._database)
        except (RedisError, sqlite3.OperationalError) as error:
            log.warning("no metrics of the queue for a scrape", reason=str(error))


def _queue(queue: JudgeQueue) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "plumbline_judge_queue_jobs", "Jobs that wait to be judged.", value=queue.rq.count
    )
    yield GaugeMetricFamily(
        "plumbline_judge_queue_oldest_seconds",
        "How long the job at the head of the queue has waited; 0 without one.",
        value=queue.oldest_wait(),
    )
    yield GaugeMetricFamily(
        "plumbline_judge_workers", "Judge workers that are registered.", value=queue.workers()
    )


def _streams(redis: Redis, database: Database) -> Iterator[Metric]:
    looks = runs_progress(redis)
    with database.read() as connection:
        done = {run.run: run.events for run in all_runs(connection)}
    behind = sum(max(0, look.events - done.get(look.run, 0)) for look in looks)
    yield GaugeMetricFamily(
        "plumbline_stream_lag", "Entries of the streams that the index does not have.", value=behind
    )
    newest = max((int(look.last_event.partition("-")[0]) for look in looks), default=0)
    if newest:
        yield GaugeMetricFamily(
            "plumbline_last_verdict_timestamp_seconds",
            "When the newest verdict was written, Unix.",
            value=newest / 1000,
        )
