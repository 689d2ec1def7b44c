"""Reward stub, run in the service's image: completions that wait or are not judged, and refusals.

What counts and exposes them is real.
"""

from prometheus_client import start_http_server

from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreResult
from shared.statuses import FinalStatus

UNJUDGED = ScoreResult(reason="sandbox_timeout: nothing answered")
LATE = ScoreResult(
    score=0.0, status=FinalStatus.WRONG_ANSWER, judged=True, queue_seconds=200.0, judge_seconds=1.0
)

if __name__ == "__main__":
    metrics = RewardMetrics()
    _, thread = start_http_server(8090, registry=metrics.registry)
    while thread.is_alive():  # the alerts are about increases
        thread.join(1)
        metrics.count_request("/v1/score", 404)
        metrics.count_result("stub", UNJUDGED)
        metrics.count_result("stub", LATE)
