"""Users of Redis: what each of them may, and what it may not."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import AuthenticationError, Redis
from rq.job import JobStatus

from services.aggregator.ingest import Ingester
from services.judge.canaries import CanaryProfile, CanaryRounds
from services.judge.permits import SandboxPool
from services.judge.sandbox import SandboxClient
from shared.config import Config
from shared.ledger import CanaryLedger, JudgeQueue, Ledger, connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import live_workers
from shared.run_record import RunState
from shared.schemas import Generation, SampleId, Verdict
from tests.judge.workers import Worker
from tests.redis_users import CONFIGS, PASSWORDS, RedisWithUsers, redis_with_users, refused
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

P1, P2 = SampleId("d1", "p1"), SampleId("d1", "p2")
RUN_KEYS = f"plumbline:run:{RUN}"
META, HASHES = f"{RUN_KEYS}:meta", f"{RUN_KEYS}:hashes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisWithUsers]:
    with redis_with_users(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: RedisWithUsers) -> Iterator[None]:
    with server.client("default") as redis:
        redis.flushall()
    server.refusals()
    yield


def client(server: RedisWithUsers, user: str) -> Redis:
    return server.client(user)


# What each may


@pytest.mark.parametrize("user", PASSWORDS)
def test_only_its_password_opens_a_user(server: RedisWithUsers, user: str) -> None:
    with client(server, user) as redis:
        assert redis.ping()
    wrong = PASSWORDS[user] + "x"
    for options in ({}, {"username": user}, {"username": user, "password": wrong}):
        with pytest.raises(AuthenticationError):
            Redis.from_url(server.url, **options).ping()


def test_a_judge_takes_jobs_of_one_queue_while_the_other_has_to_wait(
    server: RedisWithUsers,
) -> None:
    ledger = Ledger(client(server, "runner"), RUN)
    enter(ledger, [problem("p1")])
    ledger.record(generation(P1))
    with client(server, "judge") as redis:
        queue = JudgeQueue.of_run(redis, RUN)
        taken = JudgeQueue.dequeue_any([queue], None, redis)
        assert taken is not None
        assert JudgeQueue.dequeue_any([queue], None, redis) is None
    assert server.refusals() == []


def test_everything_that_a_runner_does(server: RedisWithUsers, tmp_path: Path) -> None:
    redis = client(server, "runner")
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem("p1"), problem("p2")], output=str(tmp_path))
    assert ledger.lock("me", 10)
    assert ledger.plan() is None or ledger.meta() is not None
    ledger.record(generation(P1, "old"))
    ledger.record(generation(P1), generation(P2, error="http_500"))
    ledger.record_verdict(verdict(generation(P1)))
    ledger.rejudge([(P1, generation(P1).completion_sha256)])
    assert ledger.completed() and ledger.judged()
    assert list(ledger.completions([P1])) and list(ledger.problems([P1]))
    assert list(ledger.verdicts([P2])) and ledger.verdict(P1) is None
    assert ledger.events() and ledger.events(ledger.last_event(), block=0.01) == []
    redis_of_all = client(server, "default")
    redis_of_all.delete("rq:queue:judge")
    ledger.requeue_lost(ledger.requeue_lost(set()))
    ledger.rejudge([(one, generation(one).completion_sha256) for one in (P1, P2)])
    redis_of_all.lpop("rq:queue:judge")
    for _ in range(2):
        fail_next_job(redis_of_all)
        ledger.requeue_lost(ledger.requeue_lost(set()))
    canaries = CanaryLedger(ledger.redis, ledger.run)
    assert canaries.outstanding() == 0 and canaries.record() is not None
    ledger.rejudge([(P1, generation(P1).completion_sha256)])
    ledger.record_verdict(verdict(generation(P1)))
    assert ledger.verdict(P1) and ledger.judged_count() == 1
    ledger.record(generation(P1, "new"))
    ledger.add_active_seconds(1)
    ledger.finish(1)
    ledger.set_state(RunState.JUDGED)
    assert live_workers(redis) == []
    ledger.delete()
    ledger.unlock("me")
    assert server.refusals() == []


def fail_next_job(redis: Redis) -> None:
    """As RQ does after the last retry."""
    queue = JudgeQueue("judge", redis)
    job = queue.fetch_job(redis.lpop(queue.key).decode())
    job.set_status(JobStatus.FAILED)
    queue.failed_job_registry.add(job)


async def test_everything_that_a_judge_does(server: RedisWithUsers) -> None:
    ledger = Ledger(client(server, "runner"), RUN)
    samples = [SampleId("d1", f"p{n}") for n in range(6)]
    enter(ledger, [problem(one.problem_id) for one in samples])
    texts = ["1", "raise", "1", "1", "1", "1"]
    pairs = zip(samples, texts, strict=True)
    ledger.record(*(generation(sample, text) for sample, text in pairs))

    async def judge(given: Generation) -> Verdict:
        worker.rq.beat()
        if given.completion == "raise":
            raise ZeroDivisionError
        return verdict(given)

    url = server.url_of("judge")
    async with Worker(url, "w", judge=judge) as worker:
        worker.rq.bootstrap("WARNING")
        await worker.judge_all()
        assert len(ledger.judged()) == 5 and len(worker.errors) == 4
        ledger.record(generation("lost"))
        with client(server, "default") as admin:
            lost = admin.lpop("rq:queue:judge").decode()
            admin.hset(f"rq:job:{lost}", "status", "started")
            admin.zadd("rq:wip:judge", {f"{lost}:{'0' * 32}": time.time() - 1})
            admin.sadd("rq:workers:judge", "rq:worker:gone")
        worker.rq.run_maintenance_tasks()
        assert ledger.queue.get_job_ids() == [lost]
        worker.rq.check_for_suspension(burst=False)
        worker.rq.teardown()
    redis = await connect_async(url)
    commands = PipelinedRedis(redis)
    pool = SandboxPool(commands, ["http://s"], "w", max_concurrency=1)
    async with pool.permit():
        waiting = asyncio.create_task(_permit(pool))
        await asyncio.sleep(0.05)
    await waiting
    await pool.close()
    rounds = CanaryRounds(commands, lambda _: None)
    async with SandboxClient(pool, max_attempts=1, retry_budget=0) as sandbox:
        profile = CanaryProfile("batch", "python", functions=False)
        await rounds.start(RUN, profile, Config(), sandbox, 16)
        assert CanaryLedger(client(server, "default"), RUN).outstanding() == 1
        await rounds.close()
    await redis.aclose()
    assert server.refusals() == []


async def _permit(pool: SandboxPool) -> None:
    async with pool.permit(exclusive=True):
        pass


def test_everything_that_an_aggregator_does(server: RedisWithUsers, tmp_path: Path) -> None:
    writer = Ledger(client(server, "runner"), RUN)
    enter(writer, [problem("p1")], state="judged", output=str(tmp_path))
    writer.record(generation(P1))
    writer.record_verdict(verdict(generation(P1)), b"cases")
    redis = client(server, "aggregator")
    ingester, ledger = Ingester(redis), Ledger(redis, RUN)
    assert ingester.catch_up()
    assert [one.run for one in ingester.unpublished()] == [RUN]
    assert ledger.meta() is not None and ledger.plan() is None
    assert CanaryLedger(ledger.redis, ledger.run).record() is not None
    assert list(ledger.verdicts([P1])) and list(ledger.completions([P1]))
    assert ledger.problem("d1", "p1") and list(ledger.cases([P1]))
    writer.lock("me", 10)
    ledger.fail("no")
    assert ledger.state() is not None
    queue = JudgeQueue("judge", redis)
    assert (queue.count, live_workers(redis)) == (1, [])
    assert queue.oldest_wait() >= 0
    with client(server, "default") as judge:
        judge.zadd("rq:wip:judge", {f"{'0' * 40}:{'1' * 32}": time.time() + 60})
    assert queue.oldest_lease() == 0
    assert redis.info("memory")["maxmemory"] == 0
    assert server.refusals() == []


def test_the_autoscaler_counts_jobs(server: RedisWithUsers) -> None:
    """With the script of KEDA's scaler."""
    script = """
        local listName = KEYS[1]
        local listType = redis.call('type', listName).ok
        local cmd = { zset = 'zcard', set = 'scard', list = 'llen', hash = 'hlen', none = 'llen' }
        return redis.call(cmd[listType], listName)
    """
    with client(server, "default") as admin:
        admin.lpush("rq:queue:judge", "a", "b")
        admin.zadd("rq:wip:judge", {"c": 1})
    redis = client(server, "keda")
    assert redis.eval(script, 1, "rq:queue:judge") == 2
    assert redis.eval(script, 1, "rq:wip:judge") == 1
    assert server.refusals() == []


# What none may

FORBIDDEN = [
    *(("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "GET", "*"), ("CONFIG", "SET", "dir", "/")),
    *(("KEYS", "*"), ("SCAN", "0"), ("SHUTDOWN",), ("MONITOR",)),
    *(("ACL", "SETUSER", "x"), ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "ID", "1")),
    *(("MODULE", "LIST"), ("REPLICAOF", "host", "1"), ("SAVE",), ("BGREWRITEAOF",)),
    *(("SCRIPT", "FLUSH"), ("FUNCTION", "LIST"), ("DUMP", META), ("SWAPDB", "0", "1")),
    *(("RENAME", META, "rq:job:x"), ("SORT", "rq:queue:judge"), ("INFO",), ("SLOWLOG", "GET")),
    *(("GET", "other"), ("SET", "other", "1"), ("DEL", "other"), ("PUBLISH", "other", "x")),
    *(("HSET", "rq:job:x", "data", "x"), ("RPUSH", "rq:queue:other", "x")),
    *(("SADD", "rq:groups", "g"), ("ZADD", "rq:ready:judge", "1", "x"), ("PSUBSCRIBE", "*")),
]
# Those that write jobs by their trade, and who tells how full Redis is.
MAY = {
    ("INFO",): {"aggregator", "judge", "runner", "reward"},
    ("HSET", "rq:job:x", "data", "x"): {"judge", "runner", "reward"},
}


@pytest.mark.parametrize("user", ["judge", "runner", "aggregator", "reward", "keda"])
def test_nobody_may_more_than_its_trade(server: RedisWithUsers, user: str) -> None:
    with client(server, user) as redis:
        allowed = [one for one in FORBIDDEN if not refused(redis, *one)]
    assert allowed == [one for one in FORBIDDEN if user in MAY.get(one, ())]


NO_USE = {
    "judge": [
        *(f"HSET {RUN_KEYS}:{part} s x" for part in ("completions", "problems")),
        *("SADD plumbline:runs x", f"SET {RUN_KEYS}:lock x"),
        *("SET rq:suspended 1", "HSET plumbline:reward:0123456789abcdef:problems p x"),
        "SET plumbline:reward:0123456789abcdef:answer:x x",
    ],
    "runner": [
        *("ZCARD plumbline:permits:held:http://s", "SET rq:suspended 1"),
        "HSET rq:worker:x state busy",
    ],
    "aggregator": [
        *("RPUSH rq:queue:judge x", f"HSET {HASHES} s x", f"HSET {RUN_KEYS}:verdicts s x"),
        *(f"SREM plumbline:runs {RUN}", "EVAL return 0", "ZADD rq:wip:judge 1 x"),
    ],
    "reward": [
        *(f"HSET {RUN_KEYS}:verdicts s x", f"HGET {META} config", f"HGETALL {RUN_KEYS}:canaries"),
        *("SADD plumbline:runs x", "RPUSH rq:queue:judge x", "HSET rq:worker:x state busy"),
        "EVAL return 0",
    ],
    "keda": [
        *("LRANGE rq:queue:judge 0 -1", f"HLEN {META}"),
        f"EVAL redis.call('HGETALL',KEYS[1]) 1 {META}",
    ],
}


@pytest.mark.parametrize("user", NO_USE)
def test_what_a_service_has_no_use_for(server: RedisWithUsers, user: str) -> None:
    with client(server, user) as redis:
        assert [one for one in NO_USE[user] if not refused(redis, *one.split())] == []


# The start


def start(tmp_path: Path, **passwords: str) -> subprocess.CompletedProcess[str]:
    """Run the start script with passwords in variables, as Compose does, and a stand-in server."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    stand_in = tmp_path / "bin" / "redis-server"
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["sh", str(CONFIGS / "start.sh"), "--port", "1"],
        env=environment | {"REDIS_USERS": str(tmp_path / "users.acl")} | passwords,
        capture_output=True,
        text=True,
    )


def variables(**changed: str) -> dict[str, str]:
    return {name_of(user): password for user, password in PASSWORDS.items()} | changed


def test_no_password_is_written_or_shown(tmp_path: Path) -> None:
    done = start(tmp_path, **variables(REDIS_JUDGE_PASSWORD="very-secret"))
    users = tmp_path / "users.acl"
    assert (done.returncode, done.stdout) == (0, "--port 1\n")
    written = users.read_text() + done.stderr
    assert not any(text in written for text in ("very-secret", "of the operator", "PASSWORD"))
    assert users.stat().st_mode & 0o077 == 0
    assert [line.split()[1] for line in users.read_text().splitlines()] == list(PASSWORDS)


def name_of(user: str) -> str:
    """The variable of a user's password."""
    return "REDIS_PASSWORD" if user == "default" else f"REDIS_{user.upper()}_PASSWORD"


def start_with(tmp_path: Path, user: str, value: str | None) -> subprocess.CompletedProcess[str]:
    """Start with all passwords but that of a user, which is ``value``, or not set."""
    passwords = variables()
    del passwords[name_of(user)]
    return start(tmp_path, **passwords, **({} if value is None else {name_of(user): value}))


@pytest.mark.parametrize(
    ("user", "value"), [("default", None), ("judge", ""), ("runner", "\n"), ("aggregator", None)]
)
def test_a_missing_password_is_named(tmp_path: Path, user: str, value: str | None) -> None:
    done = start_with(tmp_path, user, value)
    assert (done.returncode, done.stdout) == (1, "")
    remedy = f"set {name_of(user)} in .env, or on Kubernetes the key"
    assert f"the user {user} has an empty password; {remedy}" in done.stderr


@pytest.mark.parametrize(("user", "value"), [("keda", None), ("reward", ""), ("reward", "\n")])
def test_users_of_what_is_optional_are_off(tmp_path: Path, user: str, value: str | None) -> None:
    assert start_with(tmp_path, user, value).returncode == 0
    lines = (tmp_path / "users.acl").read_text().splitlines()
    off = [line.split()[1] for line in lines if " reset on off " in line]
    assert off == [user]
