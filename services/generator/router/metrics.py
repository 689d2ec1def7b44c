"""Prometheus metrics of the router: counters, histograms, and gauges of the current state."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.generator.router.replica import ReplicaState, ReplicaStatus

_DURATION = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)


class RouterMetrics:
    """Counters and histograms in a separate registry; ``gauges`` is collected at each scrape."""

    def __init__(self, gauges: Collector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(gauges)
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "plumbline_generator_requests_total",
            "Completion requests by outcome: answered, http_<status>, cancelled.",
            ["outcome"],
            registry=self.registry,
        )
        self.retries = Counter(
            "plumbline_generator_retries_total",
            "Requests that were retried on another replica, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "plumbline_generator_tokens_total",
            "Tokens of answered requests, as the engines report them in usage.",
            ["kind"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "plumbline_generator_request_duration_seconds",
            "From the arrival of an answered request to the end of its answer.",
            buckets=_DURATION,
            registry=self.registry,
        )
        self.restarts = Counter(
            "plumbline_generator_replica_restarts_total",
            "Restarts of a replica.",
            ["replica"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StateGauges(Collector):
    """Gauges that are read at each scrape: the queue, and the state of each replica.

    Attributes:
        replicas: Returns the status of all replicas; empty until there is a pool.
    """

    def __init__(self, queued: Callable[[], int]) -> None:
        self._queued = queued
        self.replicas: Callable[[], Sequence[ReplicaStatus]] = tuple

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "plumbline_generator_requests_queued",
            "Completion requests that wait for a slot on a replica.",
            value=self._queued(),
        )
        replicas = self.replicas()
        yield _per_replica(
            "requests_in_flight",
            "Completion requests in flight on a replica.",
            {one.replica: one.engine.in_flight if one.engine else 0 for one in replicas},
        )
        yield _per_replica(
            "replica_healthy",
            "1 while a replica gets requests.",
            {one.replica: float(one.state is ReplicaState.HEALTHY) for one in replicas},
        )


def _per_replica(name: str, text: str, values: dict[int, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"plumbline_generator_{name}", text, labels=["replica"])
    for rank, value in values.items():
        family.add_metric([str(rank)], value)
    return family
