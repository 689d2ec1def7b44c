"""Prometheus metrics of a judge process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from shared.canaries import CanaryReport
from shared.schemas import Verdict


class JudgeMetrics:
    """Metrics of one worker process, in their own registry. Not thread-safe.

    Attributes:
        concurrency: Completions that the process may judge at once.
        in_flight: Completions that it judges now.
        judged: Completions that it has judged.
        distrusted: By sandbox, the latest finding of canaries that it judged wrongly.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.in_flight = 0
        self.judged = 0
        self.distrusted: dict[str, str] = {}
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"plumbline_judge_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, value: Callable[[], float]) -> None:
            Gauge(f"plumbline_judge_{name}", text, registry=registry).set_function(value)

        self._samples = counter("samples", "Samples judged, by status.", "status")
        self._requests = counter(
            "sandbox_requests", "Requests made to the sandbox, failed ones included."
        )
        self._busy = counter(
            "busy_seconds", "Seconds spent judging, summed over the completions in flight."
        )
        self._confirmations = counter(
            "timeout_confirmations",
            "Cases run a second time because load may have been why they took too long.",
            "outcome",
        )
        self._canaries = counter(
            "canaries",
            "Canaries sent to sandboxes, by whether they got the expected verdict.",
            *("sandbox", "outcome"),
        )
        gauge("concurrency", "Completions that the process may judge at once.", lambda: concurrency)
        gauge("in_flight", "Completions that the process judges now.", lambda: self.in_flight)
        gauge(
            "sandboxes_distrusted",
            "Sandboxes that judged canaries wrongly in their latest round.",
            lambda: len(self.distrusted),
        )

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Count a completion as in flight, and its time as busy, until the block ends."""
        self.in_flight += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.in_flight -= 1
            self._busy.inc(time.monotonic() - began)

    def details(self) -> dict[str, object]:
        """Fields of ``/readyz``."""
        return {
            "concurrency": self.concurrency,
            "in_flight": self.in_flight,
            "distrusted": dict(self.distrusted),
        }

    def failure(self) -> str | None:
        """The reason why verdicts of this process cannot be trusted; None if they can."""
        findings = [f"sandbox {url}: {text}" for url, text in sorted(self.distrusted.items())]
        return "; ".join(findings) or None

    def count(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self.judged += 1
        self._samples.labels(verdict.final_status.value).inc()
        self._requests.inc(verdict.attempts)
        self._confirmations.labels("flipped").inc(verdict.flipped)
        self._confirmations.labels("confirmed").inc(verdict.confirmed - verdict.flipped)

    def count_canaries(self, report: CanaryReport) -> None:
        """Count the canaries of a round."""
        wrong, others = report.wrong, report.sent - report.right
        self._canaries.labels(report.sandbox, "right").inc(report.right)
        self._canaries.labels(report.sandbox, "wrong").inc(others if wrong else 0)
        self._canaries.labels(report.sandbox, "unjudged").inc(0 if wrong else others)
        if wrong or not others:
            self.distrusted.pop(report.sandbox, None)
        if wrong:
            self.distrusted[report.sandbox] = wrong[0].text
