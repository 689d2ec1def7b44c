"""Health check of a worker's sandboxes, and its Prometheus metrics."""

import http.client
import threading
import urllib.request
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from shared.schemas import Verdict


class SandboxWatch:
    """Checks the configured sandboxes on a daemon thread, because a name lookup may be slow.

    ``failure`` is the reason why no sandbox responds. It is None if at least one responds, or if
    none is configured because each run names its own. Times are seconds.
    """

    def __init__(self, urls: Sequence[str], *, interval: float = 5.0, timeout: float = 2.0) -> None:
        self._urls = urls
        self._interval = interval
        self._timeout = timeout
        self.failure = "the sandbox has not responded yet" if urls else None

    def start(self) -> None:
        if self._urls:
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            self.failure = self._check()
            pause.wait(self._interval)

    def _check(self) -> str | None:
        failure = ""
        for url in self._urls:
            try:
                with urllib.request.urlopen(f"{url}/v1/ping", timeout=self._timeout):
                    return None
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = f"no sandbox answers, tried {', '.join(self._urls)}: {error}"
        return failure


class JudgeMetrics:
    """Counters of one worker process, in their own registry."""

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
