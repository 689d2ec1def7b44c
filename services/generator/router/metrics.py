"""What the router counts."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)


class RouterMetrics:
    """In a registry of its own; ``gauges`` is asked for the present state at each scrape."""

    def __init__(self, gauges: Collector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(gauges)
        self.requests = Counter(
            "plumbline_generator_requests_total",
            "Completion requests by what became of them: answered, http_<status>, broken_stream, "
            "cancelled.",
            ["outcome"],
            registry=self.registry,
        )
        self.retries = Counter(
            "plumbline_generator_retries_total",
            "Requests that were given to another replica, by the reason.",
            ["reason"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "plumbline_generator_tokens_total",
            "Tokens of answered requests, as the engines report them in usage.",
            ["kind"],
            registry=self.registry,
        )
        self.time_to_first_token = Histogram(
            "plumbline_generator_time_to_first_token_seconds",
            "From the arrival of a streamed request to its first token, waiting and retries too.",
            buckets=_FIRST_TOKEN,
            registry=self.registry,
        )
        self.duration = Histogram(
            "plumbline_generator_request_duration_seconds",
            "From the arrival of an answered request to the end of its answer.",
            buckets=_WHOLE,
            registry=self.registry,
        )
        self.restarts = Counter(
            "plumbline_generator_replica_restarts_total",
            "How often a replica was started again.",
            ["replica"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)


def gauge(name: str, text: str, values: dict[str, float]) -> GaugeMetricFamily:
    """A gauge with one value a replica."""
    family = GaugeMetricFamily(f"plumbline_generator_{name}", text, labels=["replica"])
    for replica, value in values.items():
        family.add_metric([replica], value)
    return family
