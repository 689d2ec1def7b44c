"""Processing of a job by one worker, with a real ledger and a real sandbox."""

import sys
from collections.abc import Iterator

import pytest
from redis import Redis

from services.judge.jobs import JudgeProcess, judge_sample, set_current
from services.judge.settings import JudgeSettings
from shared.config import load_config
from shared.errors import PlumblineError
from shared.ledger import Ledger
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.runner.generators import refused_url
from tests.shared.ledgers import enter, generation, problem, verdict

ECHO = "```python\nprint(input())\n```"
P1 = SampleId("d1", "p1")


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    return Ledger(redis, "run-1")


@pytest.fixture
def process(redis: Redis, redis_server: RedisServer) -> Iterator[JudgeProcess]:
    settings = JudgeSettings(redis_url=redis_server.url, sandbox_urls="")
    process = JudgeProcess(settings, redis, "worker-1")
    set_current(process)
    yield process
    process.close()


def begin(ledger: Ledger, sandbox_url: str, *more: str) -> None:
    """What a runner writes when a session begins."""
    overrides = [f"sandbox.url={sandbox_url}/run_code", "judge.retry_budget=0", *more]
    enter(ledger, [problem("p1"), problem("p2")], config=load_config(None, overrides))


def judge(ledger: Ledger, sample: SampleId = P1, completion: str = ECHO) -> None:
    judge_sample(ledger.run, sample.key, generation(sample, completion).completion_sha256)


@pytest.mark.usefixtures("process")
def test_a_job_becomes_a_verdict(ledger: Ledger, redis: Redis, sandbox_url: str) -> None:
    begin(ledger, sandbox_url)
    ledger.record(generation(completion=ECHO))
    judge(ledger)
    found = ledger.verdict(P1)
    assert found is not None
    assert (found.final_status, found.accepted, found.attempts) == (FinalStatus.SUCCESS, True, 1)
    assert found.completion_sha256 == generation(completion=ECHO).completion_sha256
    assert found.worker == "worker-1"
    assert found.judged_at is not None
    assert redis.keys("*lease*") == []


@pytest.mark.usefixtures("process")
def test_what_is_judged_is_not_judged_again(ledger: Ledger) -> None:
    begin(ledger, refused_url())
    ledger.record(generation(completion=ECHO))
    ledger.record_verdict(verdict(generation(completion=ECHO)))
    judge(ledger)
    assert ledger.verdict(P1) == verdict(generation(completion=ECHO))
    assert ledger.meta().duplicate_verdicts == 0


@pytest.mark.usefixtures("process")
def test_a_replaced_completion_is_not_judged(ledger: Ledger) -> None:
    begin(ledger, refused_url())
    ledger.record(generation(completion="new"))
    judge(ledger, completion="old")
    assert ledger.verdict(P1) is None


@pytest.mark.usefixtures("process")
def test_a_job_of_a_deleted_run_is_passed_over(ledger: Ledger) -> None:
    begin(ledger, refused_url())
    ledger.record(generation(completion=ECHO))
    ledger.delete()
    judge(ledger)
    assert ledger.verdict(P1) is None
    assert ledger.meta() is None


@pytest.mark.usefixtures("process")
def test_without_a_sandbox_the_sample_is_ours(ledger: Ledger) -> None:
    url = refused_url()
    begin(ledger, url)
    ledger.record(generation(completion=ECHO))
    judge(ledger)
    found = ledger.verdict(P1)
    assert found is not None
    assert found.final_status is FinalStatus.API_ERROR
    assert (found.detail or "").startswith("sandbox: ClientConnectorError")
    assert found.attempts == len(found.infra_failures) == 1


@pytest.mark.usefixtures("process")
def test_what_a_worker_lacks_is_said_in_the_verdict(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "verl", None)  # not installed
    begin(ledger, refused_url(), "judge.method=compute_score", "judge.verl_native=true")
    ledger.record(generation(completion=ECHO))
    judge(ledger)
    found = ledger.verdict(P1)
    assert found is not None
    assert found.final_status is FinalStatus.API_ERROR
    assert (found.detail or "").startswith("config: judge.verl_native needs verl")


@pytest.mark.usefixtures("process")
def test_a_problem_that_the_ledger_lacks_is_a_failed_job(ledger: Ledger, sandbox_url: str) -> None:
    begin(ledger, sandbox_url)
    other = SampleId("d1", "other")
    ledger.record(generation(other, ECHO))
    with pytest.raises(PlumblineError, match="other"):
        judge(ledger, other)


@pytest.mark.usefixtures("process")
def test_the_next_session_may_name_another_sandbox(ledger: Ledger, sandbox_url: str) -> None:
    """The worker outlives a session; the same run goes on with ``sandbox.url`` put right."""
    begin(ledger, refused_url())
    ledger.record(generation(completion=ECHO))
    judge(ledger)
    begin(ledger, sandbox_url)
    ledger.rejudge(P1, generation(completion=ECHO).completion_sha256)
    judge(ledger)
    found = ledger.verdict(P1)
    assert found is not None
    assert found.final_status is FinalStatus.SUCCESS


@pytest.mark.usefixtures("process")
def test_the_environment_says_where_the_sandbox_is(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    begin(ledger, refused_url())
    urls = f" {sandbox_url}/run_code ,"
    settings = JudgeSettings(redis_url=redis_server.url, sandbox_urls=urls)
    process = JudgeProcess(settings, redis, "worker-2")
    ledger.record(generation(completion=ECHO))
    process.judge(ledger.run, P1, generation(completion=ECHO).completion_sha256)
    process.close()
    found = ledger.verdict(P1)
    assert found is not None
    assert (found.final_status, found.worker) == (FinalStatus.SUCCESS, "worker-2")
