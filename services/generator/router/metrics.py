"""Prometheus metrics of the router, and those of the engines, merged with a label ``replica``."""

import asyncio
from collections.abc import Iterable, Mapping

import aiohttp
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_DURATION = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)
_LABEL = "replica"
_TOKEN_COUNTERS = ("generation_tokens_total", "prompt_tokens_total")
_SCRAPE_SECONDS = 2.0
# The parser raises all of these for text that is not in Prometheus' format.
_PARSE_ERRORS = (ValueError, IndexError, OverflowError)


class RouterMetrics:
    """Metrics in a separate registry; the gauges' functions are set by the router."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, label: str) -> Counter:
            return Counter(f"plumbline_generator_{name}", text, [label], registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"plumbline_generator_{name}", text, labels, registry=registry)

        text = "Completion requests by outcome: answered, http_<status>, cancelled."
        self.requests = counter("requests_total", text, "outcome")
        text = "Tokens of answered requests, as the engines report them in usage."
        self.tokens = counter("tokens_total", text, "kind")
        self.restarts = counter("replica_restarts_total", "Restarts of a replica.", _LABEL)
        self.duration = Histogram(
            "plumbline_generator_request_duration_seconds",
            "From the arrival of an answered request to the end of its answer.",
            buckets=_DURATION,
            registry=registry,
        )
        text = "Completion requests that wait for a slot on a replica."
        self.queued = gauge("requests_queued", text)
        text = "Completion requests in flight on a replica."
        self.in_flight = gauge("requests_in_flight", text, _LABEL)
        self.healthy = gauge("replica_healthy", "1 while a replica gets requests.", _LABEL)

    def text(self) -> bytes:
        return generate_latest(self.registry)


# Metrics of the engines


async def scrape(session: aiohttp.ClientSession, urls: Mapping[int, str]) -> bytes:
    """Scrape all engines, given by rank; skips engines that take over two seconds."""
    texts = await asyncio.gather(*(fetch(session, url, _SCRAPE_SECONDS) for url in urls.values()))
    # In a thread: parsing thousands of lines would block the event loop.
    return await asyncio.to_thread(merge, dict(zip(map(str, urls), texts, strict=True)))


async def fetch(session: aiohttp.ClientSession, url: str, seconds: float) -> str:
    """The metrics of an engine; empty if it does not answer in time."""
    limit = aiohttp.ClientTimeout(total=seconds)
    try:
        async with session.get(f"{url}/metrics", timeout=limit, raise_for_status=True) as answer:
            return (await answer.read()).decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError):
        return ""


def merge(texts: Mapping[str, str]) -> bytes:
    """Merge the metrics of several replicas into one text; skips damaged ones.

    The samples of a metric are grouped under the first engine's ``HELP`` and ``TYPE``. If an engine
    has a label ``replica`` itself, it becomes ``exported_replica``, as in Prometheus.
    """
    merged: dict[tuple[str, str], Metric] = {}
    for replica, text in texts.items():
        for family in _families(text):
            samples = [_labelled(sample, replica) for sample in family.samples]
            first = merged.setdefault((family.name, family.type), family)
            if first is family:
                family.samples = samples
            else:
                first.samples.extend(samples)
    return generate_latest(_Parsed(metric for metric in merged.values() if metric.samples))


def count_tokens(text: str) -> float | None:
    """Sum the prompt and generation tokens of an engine; None without such counters."""
    # Parse only these lines, because the parser takes 40 microseconds per line.
    lines = [line for line in text.splitlines() if any(name in line for name in _TOKEN_COUNTERS)]
    values = [
        sample.value
        for family in _families("\n".join(lines))
        for sample in family.samples
        if sample.name.endswith(_TOKEN_COUNTERS)
    ]
    return sum(values) if values else None


class _Parsed(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> list[Metric]:
        return self._metrics


def _families(text: str) -> list[Metric]:
    """Parse an exposition; empty for a damaged one, or one that cannot be written again."""
    try:
        families = list(text_string_to_metric_families(text))
        for sample in (sample for family in families for sample in family.samples):
            int(float(sample.timestamp or 0) * 1000)
            float(sample.value)
    except _PARSE_ERRORS:
        return []
    return families


def _labelled(sample: Sample, replica: str) -> Sample:
    own = {f"exported_{k}" if k == _LABEL else k: value for k, value in sample.labels.items()}
    return sample._replace(labels={_LABEL: replica, **own})
