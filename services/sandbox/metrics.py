"""Prometheus metrics of the sandbox server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from services.sandbox.admission import Admission

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class SandboxMetrics:
    """Metrics of one server, in a separate registry so that two servers can share a process."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        outcomes = {
            "requests": "Requests to /run_code by outcome.",
            "run_cases": "Requests to /run_cases by outcome.",
            "submits": "Requests to /submit by outcome; their runs count in run and busy seconds.",
        }
        self.requests, self.run_cases, self.submits = (
            Counter(f"plumbline_sandbox_{name}", text, ["outcome"], registry=self.registry)
            for name, text in outcomes.items()
        )
        self.run_seconds = Histogram(
            "plumbline_sandbox_run_seconds",
            "Seconds from admission to the answer, compilation included.",
            ["language"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.busy_seconds = Counter(
            "plumbline_sandbox_busy_seconds",
            "Seconds during which slots were taken, summed over slots.",
            registry=self.registry,
        )
        in_flight = Gauge(
            "plumbline_sandbox_in_flight", "Requests that run now.", registry=self.registry
        )
        in_flight.set_function(lambda: admission.in_flight)
        queued = Gauge(
            "plumbline_sandbox_queued", "Requests that wait for a slot.", registry=self.registry
        )
        queued.set_function(lambda: admission.queued)
