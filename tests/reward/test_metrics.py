"""Metrics of rewards: what is counted as what, with a bounded number of labels."""

import re

from prometheus_client import generate_latest
from redis import Redis
from structlog.testing import capture_logs

from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreResult
from shared.analysis.hacking import LIMITS, Sign
from tests.conftest import RedisServer
from tests.reward.servers import served
from tests.reward.test_reward_log import result


def text(metrics: RewardMetrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_judged_remembered_and_unjudged_results() -> None:
    metrics = RewardMetrics()
    metrics.count_result("set", result(score=0.5, queue_seconds=2.0, judge_seconds=0.2))
    metrics.count_result("set", result(score=1.0, cached=True))
    metrics.count_result("set", ScoreResult(reason="http_503: full"))
    printed = text(metrics)
    results = {'dataset="set",status="success"': 2, 'dataset="set",status="api_error"': 1}
    assert counted_as(printed, "results") == results
    assert counted_as(printed, "unjudged") == {'reason="http_503"': 1}
    assert "plumbline_reward_cache_hits_total 1.0" in printed
    assert "plumbline_reward_score_count 2.0" in printed
    assert 'plumbline_reward_score_bucket{le="0.5"} 1.0' in printed
    assert "plumbline_reward_queue_seconds_sum 2.0" in printed
    assert "plumbline_reward_judge_seconds_count 1.0" in printed


def test_what_the_guards_stopped() -> None:
    metrics = RewardMetrics()
    assert 'plumbline_reward_guarded_total{kind="early_exit"} 0.0' in text(metrics)
    for detail in ("early_exit", "SIGSYS", "SIGSEGV", None):
        metrics.count_result("set", result(score=0.0, detail=detail))
    assert counted_as(text(metrics), "guarded") == {'kind="early_exit"': 1, 'kind="SIGSYS"': 1}


def test_signs_of_reward_hacking_and_their_limits() -> None:
    metrics = RewardMetrics()
    metrics.count_signs({Sign.GUARD: True, Sign.COPIED: False}, 100)
    metrics.count_signs({Sign.GUARD: False}, 20)
    printed = text(metrics)
    assert counted_as(printed, "hacking_signs") == {'sign="guard"': 1}
    assert counted_as(printed, "hacking_measured") == {'sign="guard"': 2, 'sign="copied"': 1}
    assert "plumbline_reward_characters_total 120.0" in printed
    assert f'plumbline_reward_hacking_limit{{sign="guard"}} {LIMITS[Sign.GUARD]}' in printed


def counted_as(found: str, name: str) -> dict[str, float]:
    """The values of a counter that are not 0."""
    values = re.findall(rf"^plumbline_reward_{name}_total{{(.*)}} (\S+)$", found, re.MULTILINE)
    return {labels: float(value) for labels, value in values if float(value)}


def test_the_first_of_a_kind_is_an_increase() -> None:
    metrics = RewardMetrics()
    before = text(metrics)
    for code in (401, 403, 404, 409, 413, 422):
        assert f'plumbline_reward_refused_total{{code="{code}"}} 0.0' in before
    for reason in ("read_timeout", "http_503", "ClientConnectorError", "deadline_passed", "other"):
        assert f'plumbline_reward_unjudged_total{{reason="{reason}"}} 0.0' in before


async def test_what_is_refused_is_counted_and_its_reason_logged(
    redis: Redis, redis_server: RedisServer
) -> None:
    with capture_logs() as logged:
        await refused_by_name_and_by_token(redis, redis_server)
    told = [one for one in logged if one["event"] == "request refused"]
    assert [one["status"] for one in told] == [404, 401]  # a client may repeat its request
    assert "unknown data set 'nothing'" in told[0]["reason"]
    assert "the token is missing or wrong" in told[1]["reason"]


async def refused_by_name_and_by_token(redis: Redis, redis_server: RedisServer) -> None:
    body = {"completion": "x", "dataset": "nothing", "problem_id": "1"}
    async with served(redis, redis_server.url) as service:
        for _ in range(3):
            assert (await service.score(**body))[0] == 404
        assert counted_as(text(service.service.metrics), "refused") == {'code="404"': 3}
    async with served(redis, redis_server.url, token="secret") as service:
        assert (await service.score(**body))[0] == 401  # by its header alone
        assert counted_as(text(service.service.metrics), "refused") == {'code="401"': 1}


def test_clients_cannot_make_labels_without_end() -> None:
    metrics = RewardMetrics()
    for number in range(1000):
        metrics.count_result(f"set {number}", result())
        metrics.count_result("set", ScoreResult(reason=f"reason {number}: x"))
    printed = text(metrics)
    assert printed.count("plumbline_reward_results_total{") <= 203
    assert 'plumbline_reward_unjudged_total{reason="other"} 1000.0' in printed
