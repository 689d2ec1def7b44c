import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from services.aggregator.index.database import Database, open_database
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import AggregatorCollector
from shared.ledger import Ledger
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, judge
from tests.shared.ledgers import generation, problem, verdict

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = begin(redis, [problem(f"p{i}") for i in range(6)])
    assert ledger.lock("runner", 600.0)
    return ledger


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    database = open_database(tmp_path / "index")
    yield database
    database.close()


@pytest.fixture
def ingester(redis: Redis, database: Database) -> Ingester:
    return Ingester(redis, database)


def scrape(redis: Redis, ingester: Ingester) -> Found:
    registry = CollectorRegistry()
    registry.register(AggregatorCollector(redis, ingester.database, ingester.metrics))
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Found, name: str, **labels: str) -> float | None:
    return found.get((f"plumbline_{name}", frozenset(labels.items())))


def caught_up(redis: Redis, ingester: Ingester) -> Found:
    ingester.catch_up()
    return scrape(redis, ingester)


def counters(found: Found) -> Found:
    ends = ("_total", "_bucket", "_count", "_sum")
    return {key: value for key, value in found.items() if key[0].endswith(ends)}


def test_verdicts_samples_and_shares(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    statuses = ["success", "success", "wrong_answer", "api_error"]
    for number, status in enumerate(statuses):
        judge(ledger, SampleId("d1", f"p{number}"), FinalStatus(status))
    metrics = caught_up(redis, ingester)
    assert of(metrics, "verdicts_total", dataset="d1", status="success") == 2
    assert of(metrics, "verdicts_total", dataset="d1", status="api_error") == 1
    assert of(metrics, "samples", dataset="d1", state="judged") == 3
    assert of(metrics, "samples", dataset="d1", state="api_error") == 1
    assert of(metrics, "samples", dataset="d1", state="open") == 2
    assert of(metrics, "accepted_ratio", dataset="d1") == pytest.approx(2 / 3)
    assert of(metrics, "run_progress_ratio") == pytest.approx(4 / 6)


def test_counters_begin_with_zero(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    """Prometheus sees no increase in one that begins with its first count."""
    metrics = caught_up(redis, ingester)
    for status in FinalStatus:
        assert of(metrics, "verdicts_total", dataset="d1", status=status.value) == 0
    for reason in ("http_503", "read_timeout", "other"):
        assert of(metrics, "infra_failures_total", reason=reason) == 0


def test_histograms(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    made = {"output_tokens": 100, "gen_time": 2.0}
    judge(ledger, SampleId("d1", "p0"), made=made, total_judge_time=0.5)
    cut = {"pass_ratio": 0.3, "cases_total": 10, "cases_not_run": 6}
    judge(ledger, SampleId("d1", "p1"), FinalStatus.TIMEOUT, made=made, **cut)
    judge(ledger, SampleId("d1", "p2"), FinalStatus.API_ERROR, infra_failures=["http_503: x"])
    metrics = caught_up(redis, ingester)
    assert of(metrics, "pass_ratio_count", dataset="d1") == 2
    assert of(metrics, "pass_ratio_sum", dataset="d1") == pytest.approx(1.3)
    assert of(metrics, "pass_ratio_bucket", dataset="d1", le="0.3") == 1
    assert of(metrics, "pass_ratio_bucket", dataset="d1", le="0.99999") == 1
    assert of(metrics, "judge_seconds_bucket", dataset="d1", le="0.5") == 2
    assert of(metrics, "judge_seconds_bucket", dataset="d1", le="0.25") == 0
    assert of(metrics, "generation_seconds_count", dataset="d1") == 2
    assert of(metrics, "output_tokens_bucket", dataset="d1", le="64.0") == 0
    assert of(metrics, "output_tokens_bucket", dataset="d1", le="128.0") == 2
    assert of(metrics, "output_tokens_sum", dataset="d1") == 200
    assert of(metrics, "infra_failures_total", reason="http_503") == 1


def test_the_queue_and_the_stream(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    empty = scrape(redis, ingester)
    for queue in ("judge", "reward"):
        assert of(empty, "judge_queue_jobs", queue=queue) == 0
        assert of(empty, "judge_queue_oldest_seconds", queue=queue) == 0
    assert of(empty, "judge_workers") == of(empty, "stream_lag") == 0
    ledger.record(generation("p0"))
    job = ledger.queue.get_jobs()[0]
    long_ago = "2020-01-01T00:00:00.000000Z"
    redis.hset(job.key, "enqueued_at", long_ago)
    ledger.record_verdict(verdict(generation("p0")))
    metrics = scrape(redis, ingester)
    assert of(metrics, "judge_queue_jobs", queue="judge") == 1
    assert of(metrics, "judge_queue_oldest_seconds", queue="judge") > 1e8
    assert of(metrics, "stream_lag") == 1
    assert of(metrics, "last_verdict_timestamp_seconds") == pytest.approx(time.time(), abs=60)
    assert of(caught_up(redis, ingester), "stream_lag") == 0


def test_the_lease_that_a_judge_has_had_longest(redis: Redis, ingester: Ingester) -> None:
    started = {"dead": "2019-01-01", "one": "2020-01-01", "two": "2022-01-01"}
    for job, began in started.items():
        redis.hset(f"rq:job:{job}", "started_at", f"{began}T00:00:00.000000Z")
        end = time.time() + (60 if job != "dead" else -60)
        redis.zadd("rq:wip:judge", {f"{job}:{'0' * 32}": end})

    def oldest() -> float:
        age = of(scrape(redis, ingester), "judge_oldest_lease_seconds")
        assert age is not None
        return age

    assert oldest() == pytest.approx(time.time() - 1577836800, abs=60)
    redis.delete("rq:job:one")
    assert oldest() == pytest.approx(time.time() - 1640995200, abs=60)


def test_the_memory_of_redis_and_its_limit(redis: Redis, ingester: Ingester) -> None:
    before = scrape(redis, ingester)
    assert of(before, "redis_memory_max_bytes") is None
    redis.setrange("ballast", 20_000_000, "x")
    redis.config_set("maxmemory", "1gb")
    try:
        after = scrape(redis, ingester)
    finally:
        redis.config_set("maxmemory", 0)
    assert of(after, "redis_memory_max_bytes") == 2**30
    grown = of(after, "redis_memory_used_bytes") - of(before, "redis_memory_used_bytes")
    assert grown == pytest.approx(20_000_000, rel=0.1)


def test_a_user_who_may_not_ask_for_memory_still_sees_the_queue(
    redis: Redis, ledger: Ledger, ingester: Ingester
) -> None:
    """A Redis of one's own may have users of its own, or those of an earlier version."""
    redis.execute_command("ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all", "-info")
    ledger.record(generation("p0"))
    try:
        server = redis.get_connection_kwargs()
        few = Redis(server["host"], server["port"], username="few", password="secret")
        metrics = scrape(few, ingester)
        few.close()
    finally:
        redis.execute_command("ACL", "DELUSER", "few")
    assert of(metrics, "judge_queue_jobs", queue="judge") == 1
    assert of(metrics, "stream_lag") == 0
    assert of(metrics, "judge_oldest_lease_seconds") == 0
    assert of(metrics, "redis_memory_used_bytes") is None


def test_counters_never_fall(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    """Not by judging again, another completion, or the end of a run."""
    sample = SampleId("d1", "p0")
    before: Found = {}

    def grown() -> None:
        nonlocal before
        now = counters(caught_up(redis, ingester))
        assert before.keys() <= now.keys()
        assert all(now[key] >= value for key, value in before.items())
        before = now

    judge(ledger, sample, FinalStatus.API_ERROR, {"output_tokens": 5}, infra_failures=["http_500"])
    grown()
    ledger.rejudge([(sample, generation(sample).completion_sha256)])
    grown()
    ledger.record_verdict(verdict(generation(sample)))
    grown()
    assert of(before, "verdicts_total", dataset="d1", status="api_error") == 1
    assert of(before, "verdicts_total", dataset="d1", status="success") == 1
    assert of(before, "pass_ratio_count", dataset="d1") == 1
    other = generation(sample, "print(2)", output_tokens=9)
    ledger.record(other)
    ledger.record_verdict(verdict(other))
    grown()
    assert of(before, "output_tokens_sum", dataset="d1") == 14
    ledger.delete()
    grown()
    ledger = begin(redis, [problem("p0")])
    judge(ledger, sample)
    grown()
    assert of(before, "verdicts_total", dataset="d1", status="success") == 3


def test_counters_start_again_at_zero_and_count_nothing_twice(
    redis: Redis, ledger: Ledger, database: Database
) -> None:
    """A restart is a reset, which ``rate`` and ``increase`` expect; the index is not recounted."""
    judge(ledger, SampleId("d1", "p0"), FinalStatus.API_ERROR, infra_failures=["http_500"])
    assert caught_up(redis, Ingester(redis, database))
    heir = Ingester(redis, database)
    metrics = caught_up(redis, heir)
    assert of(metrics, "verdicts_total", dataset="d1", status="api_error") == 0
    assert of(metrics, "infra_failures_total", reason="http_500") == 0
    assert of(metrics, "samples", dataset="d1", state="api_error") == 1
    judge(ledger, SampleId("d1", "p1"), FinalStatus.API_ERROR)
    metrics = caught_up(redis, heir)
    assert of(metrics, "verdicts_total", dataset="d1", status="api_error") == 1
    assert of(metrics, "samples", dataset="d1", state="api_error") == 2


def test_labels_stay_few(redis: Redis, ingester: Ingester) -> None:
    names = [f"set-{number}" for number in range(70)]
    ledger = begin(redis, [problem("p", name) for name in names])
    reasons = [f"reason_{number}" for number in range(70)]
    for name, reason in zip(names, reasons, strict=True):
        failures = [reason, "Free text, with: anything in it"]
        judge(ledger, SampleId(name, "p"), infra_failures=failures)
    metrics = caught_up(redis, ingester)
    labels = {label for _, labels in metrics for label in labels}
    for name, most in (("dataset", 51), ("reason", 51)):
        assert len({value for label, value in labels if label == name}) == most
    assert of(metrics, "verdicts_total", dataset="other", status="success") == 20
    assert of(metrics, "samples", dataset="other", state="judged") == 20
    usual = 9  # http_429 and the like, which have a label before they happen
    assert of(metrics, "infra_failures_total", reason="other") == 70 + 20 + usual


def test_no_run_or_problem_is_a_label(redis: Redis, ledger: Ledger, ingester: Ingester) -> None:
    judge(ledger, SampleId("d1", "p0"), detail="secret")
    text = str(caught_up(redis, ingester))
    assert "run-1" not in text
    assert "p0" not in text


def test_a_run_that_was_interrupted_is_not_at_work(
    redis: Redis, ledger: Ledger, ingester: Ingester
) -> None:
    """Nobody waits for it, so the alert about a run without progress is not about it."""
    assert of(caught_up(redis, ingester), "runs_running") == 1
    ledger.unlock("runner")
    assert of(caught_up(redis, ingester), "runs_running") == 0


def test_without_redis_what_the_index_knows_is_reported(ingester: Ingester) -> None:
    away = Redis.from_url("redis://127.0.0.1:1")
    found = scrape(away, ingester)
    assert of(found, "runs_running") == 0
    assert of(found, "judge_queue_jobs", queue="judge") is None
