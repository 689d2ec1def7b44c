"""Prometheus metrics of the reward service: what a trainer's rewards are made of."""

import math
import re
import time
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from services.reward.models import ScoreResult
from shared.analysis.hacking import GUARDED, LIMITS, Sign
from shared.programs import ProgramStatus
from shared.schemas import InfraFailure
from shared.service.logs import get_logger
from shared.service.server import OTHER, LabelValues
from shared.statuses import FailureKind, FinalStatus
from shared.text import shorten_end

log = get_logger(__name__)

# Data sets of inline tests are named by the clients.
_MAX_DATASETS = 200
_KINDS = {kind.value for kind in FailureKind} | {"deadline_passed"}
_KIND = re.compile(r"http_[1-5][0-9][0-9]|[A-Z][A-Za-z]{2,40}(Error|Exception|Disconnected)")
_SCORES = tuple(tenth / 10 for tenth in range(11))
# The alert about waiting is about a minute: quantiles within a bucket are guesses.
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 100, 300, 1000, 3000)
_REFUSED = range(400, 499)
_WAITS = (429,)  # it asks the client to come again
_LOG_EVERY, _REASON = 10.0, 500
_USUAL_REFUSALS = (400, 401, 403, 404, 409, 413, 421, 422, 429)
_USUAL_REASONS = (
    *("http_429", "http_500", "http_502", "http_503", "http_504"),
    *("ClientConnectorError", "ServerDisconnectedError", OTHER),
)


class RewardMetrics:
    """Metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"plumbline_reward_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"plumbline_reward_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            name = f"plumbline_reward_{name}"
            return Histogram(name, text, buckets=buckets, registry=self.registry)

        self._datasets = LabelValues(_MAX_DATASETS)
        self._logged: dict[int, float] = {}  # when the latest refusal with a code was logged
        self._requests = counter(
            "requests", "Requests; 499 is a client that went away.", "route", "code"
        )
        self._refused = counter("refused", "Requests refused as a whole, by status code.", "code")
        self._results = counter("results", "Completions answered.", "dataset", "status")
        self._unjudged = counter("unjudged", "Completions without a verdict, by reason.", "reason")
        self._guarded = counter("guarded", "Completions that a guard stopped, by kind.", "kind")
        self._signs = counter("hacking_signs", "Completions with a sign of hacking.", "sign")
        self._measured = counter(
            "hacking_measured", "Completions in which a sign can show.", "sign"
        )
        self._characters = counter("characters", "Characters of judged completions.")
        limits = gauge("hacking_limit", "Share of completions with a sign that alarms.", "sign")
        self._cache_hits = counter("cache_hits", "Completions with a remembered answer.")
        self.programs = counter("programs", "Programs run for tools, by status.", "status")
        self._scores = histogram("score", "Rewards, by the rule of each request.", _SCORES)
        self._queue = histogram("queue_seconds", "Seconds that a completion waited.", _SECONDS)
        self._judge = histogram("judge_seconds", "Seconds of all cases of a completion.", _SECONDS)
        self.pending = gauge("pending", "Completions that requests wait for.")
        # From the start, so that an increase from nothing is one: an alert would miss the first.
        for code in _USUAL_REFUSALS:
            self._refused.labels(str(code))
        for reason in (*sorted(_KINDS), *_USUAL_REASONS):
            self._unjudged.labels(reason)
        for kind in GUARDED:
            self._guarded.labels(str(kind))
        for sign, limit in LIMITS.items():
            self._signs.labels(sign.value)
            self._measured.labels(sign.value)
            limits.labels(sign.value).set(limit)
        for status in ProgramStatus:
            self.programs.labels(status.value)

    def count_request(self, route: str, code: int, reason: str = "") -> None:
        """Count a response; a request that its client broke off has the code 499."""
        self._requests.labels(route, str(code)).inc()
        if code in _REFUSED:
            self.count_refusal(code, reason)

    def count_refusal(self, code: int, reason: str = "") -> None:
        """Count a request that was refused, perhaps by its header alone, before its route.

        The reason is logged, for each code once in a while: a client may repeat its requests.
        """
        self._refused.labels(str(code)).inc()
        now = time.monotonic()
        if code not in _WAITS and now - self._logged.get(code, -math.inf) > _LOG_EVERY:
            self._logged[code] = now
            log.warning("request refused", status=int(code), reason=shorten_end(reason, _REASON))

    def count_result(self, dataset: str, result: ScoreResult) -> None:
        """Count the result of one completion."""
        self._results.labels(self._datasets.admit(dataset), result.status.value).inc()
        if not result.judged or result.status is FinalStatus.API_ERROR or result.score is None:
            self._unjudged.labels(kind_of(result.reason)).inc()
            return
        self._scores.observe(result.score)
        if result.detail in GUARDED:
            self._guarded.labels(str(result.detail)).inc()
        if result.cached:
            self._cache_hits.inc()
            return
        self._queue.observe(result.queue_seconds or 0.0)
        self._judge.observe(result.judge_seconds or 0.0)

    def count_signs(self, signs: Mapping[Sign, bool], characters: int) -> None:
        """Count the signs of reward hacking in a judged completion, and its length."""
        self._characters.inc(characters)
        for sign, present in signs.items():
            self._measured.labels(sign.value).inc()
            self._signs.labels(sign.value).inc(present)


def kind_of(reason: str | None) -> str:
    """The kind of a reason, one of a limited number."""
    kind = InfraFailure.model_validate(reason).kind if reason else OTHER
    return kind if kind in _KINDS or _KIND.fullmatch(kind) else OTHER
