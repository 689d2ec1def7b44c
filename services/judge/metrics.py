"""What a worker counts about itself."""

from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from shared.schemas import Verdict


class JudgeMetrics:
    """Counters of one worker process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._samples = Counter(
            "plumbline_judge_samples",
            "Samples judged, by status.",
            ["status"],
            registry=self.registry,
        )
        self._requests = Counter(
            "plumbline_judge_sandbox_requests",
            "Requests made to the sandbox, failed ones included.",
            registry=self.registry,
        )
        self._busy = Counter(
            "plumbline_judge_busy_seconds", "Seconds spent judging.", registry=self.registry
        )
        self._confirmations = Counter(
            "plumbline_judge_timeout_confirmations",
            "Cases run a second time because load may have been why they took too long.",
            ["outcome"],
            registry=self.registry,
        )
        self.judged = 0

    def count(self, verdict: Verdict, seconds: float) -> None:
        self.judged += 1
        self._samples.labels(verdict.final_status.value).inc()
        self._requests.inc(verdict.attempts)
        self._confirmations.labels("flipped").inc(verdict.flipped)
        self._confirmations.labels("confirmed").inc(verdict.confirmed - verdict.flipped)
        self._busy.inc(seconds)
