"""``Programs`` with real Redis, judges and sandbox: many at once, lost judges, deadlines."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

import pytest
from redis import Redis

from services.reward.errors import RefusedError
from services.reward.programs import Programs, ProgramTimings
from shared.config import Config
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.programs import Program, ProgramStatus
from shared.service.tasks import cancel_and_wait
from tests.conftest import RedisServer
from tests.reward.servers import Served, served

FAST = ProgramTimings(block=0.2, check=0.3, young=0.5, pause=0.05)


@contextmanager
def judge(redis_server: RedisServer, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "REDIS_URL": redis_server.url,
        "PORT": "0",
        "HOST": "127.0.0.1",
        "PLUMBLINE_JUDGE_LEASE_TTL": "1",
        "LOG_LEVEL": "WARNING",
        **settings,
    }
    process = subprocess.Popen([sys.executable, "-m", "services.judge"], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def programs(
    redis_server: RedisServer, url: str, *, max_pending: int = 50, max_deliveries: int = 2
) -> AsyncIterator[Programs]:
    config = Config.model_validate({"sandbox": {"url": url}})
    client = await connect_async(redis_server.url)
    found = Programs(
        client,
        PipelinedRedis(client),
        config.for_services().model_dump_json(),
        max_pending=max_pending,
        max_deliveries=max_deliveries,
        timings=FAST,
    )
    tasks = found.start()
    try:
        yield found
    finally:
        await cancel_and_wait(*tasks)
        await found.close()
        await client.aclose()


async def until(true: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def nothing_left(redis: Redis) -> bool:
    return not [*redis.keys("plumbline:programs:*"), *redis.keys("rq:job:*")]


async def test_each_request_gets_the_answer_of_its_program(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with (
        programs(redis_server, sandbox_url) as one,
        programs(redis_server, sandbox_url) as other,
    ):
        with judge(redis_server), judge(redis_server):
            given = [Program(code="print(int(input()) ** 2)", stdin=str(n)) for n in range(40)]
            work = [(one, other)[n % 2].run(program, 60) for n, program in enumerate(given)]
            results = await asyncio.gather(*work)
        assert [result.stdout for result in results] == [f"{n * n}\n" for n in range(40)]
        assert (one.pending, other.pending) == (0, 0)
    assert nothing_left(redis)


async def test_a_killed_judge_costs_no_answer(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    slow = Program(code="import time; time.sleep(1.5); print('done')")
    async with programs(redis_server, sandbox_url) as found:
        with judge(redis_server) as process:
            work = [asyncio.create_task(found.run(slow, 60)) for _ in range(3)]
            await until(lambda: len(redis.keys("plumbline:lease:*")) == 3)
            process.send_signal(signal.SIGKILL)
            process.wait()
        with judge(redis_server):
            results = await asyncio.gather(*work)
    assert [result.stdout for result in results] == ["done\n"] * 3
    assert nothing_left(redis)


async def test_what_redis_forgot_is_sent_again(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with programs(redis_server, sandbox_url) as found:
        work = asyncio.create_task(found.run(Program(code="print(1)"), 60))
        await until(lambda: redis.llen("rq:queue:judge"))
        redis.flushall()
        with judge(redis_server):
            assert (await work).stdout == "1\n"


async def test_a_program_that_loses_every_judge_is_503(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with programs(redis_server, sandbox_url, max_deliveries=1) as found:
        work = asyncio.create_task(found.run(Program(code="print(1)"), 60))
        for _ in range(2):
            await until(lambda: redis.lpop("rq:queue:judge"))
        with pytest.raises(RefusedError, match="judge_worker_lost") as caught:
            await work
    assert caught.value.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert caught.value.retry_after


async def test_a_deadline_that_passes_is_504_and_nothing_is_left(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with programs(redis_server, sandbox_url) as found:
        with pytest.raises(RefusedError) as caught:
            await found.run(Program(code="print(1)"), 0.2)
        assert caught.value.status is HTTPStatus.GATEWAY_TIMEOUT
        assert nothing_left(redis)
        assert redis.llen("rq:queue:judge") == 0


async def test_a_deadline_that_passes_is_504_while_redis_hangs(
    own_redis_server: RedisServer,
) -> None:
    server = own_redis_server.child.process
    assert server is not None
    async with programs(own_redis_server, "http://127.0.0.1:9") as found:
        server.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(20):  # far less than the client retries a command
                with pytest.raises(RefusedError) as caught:
                    await found.run(Program(code="print(1)"), 0.2)
        finally:
            server.send_signal(signal.SIGCONT)
    assert caught.value.status is HTTPStatus.GATEWAY_TIMEOUT


async def test_a_client_that_goes_takes_its_program_along(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with programs(redis_server, sandbox_url) as found:
        work = asyncio.create_task(found.run(Program(code="print(1)"), 60))
        await until(lambda: redis.llen("rq:queue:judge"))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert nothing_left(redis)
        assert redis.llen("rq:queue:judge") == 0
        assert found.pending == 0


async def test_more_than_may_be_pending_are_429(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with programs(redis_server, sandbox_url, max_pending=1) as found:
        work = asyncio.create_task(found.run(Program(code="print(1)"), 60))
        await until(lambda: found.pending)
        with pytest.raises(RefusedError) as caught:
            await found.run(Program(code="print(2)"), 60)
        assert caught.value.status is HTTPStatus.TOO_MANY_REQUESTS
        assert caught.value.retry_after
        with judge(redis_server):
            assert (await work).status is ProgramStatus.OK


async def test_a_sandbox_that_is_away_is_503(redis: Redis, redis_server: RedisServer) -> None:
    async with programs(redis_server, "http://127.0.0.1:9") as found:
        with judge(redis_server), pytest.raises(RefusedError) as caught:
            await found.run(Program(code="print(1)", timeout=1), 3)
    assert caught.value.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


# The route


@pytest.fixture
async def service(redis: Redis, redis_server: RedisServer) -> AsyncIterator[Served]:
    async with served(redis, redis_server.url, max_runs=2) as found:
        yield found


async def post(service: Served, **body: object) -> tuple[int, dict[str, object], Mapping[str, str]]:
    async with service.client.post(f"{service.url}/v1/run", json=body) as response:
        return response.status, json.loads(await response.read()), response.headers


async def test_the_route(service: Served, redis_server: RedisServer, sandbox_url: str) -> None:
    with judge(redis_server, SANDBOX_URLS=sandbox_url):
        status, body, _ = await post(service, code="print(input())", stdin="x")
        assert status == 200
        assert body.pop("seconds") > 0  # type: ignore[operator]
        assert body == {
            "status": "ok", "stdout": "x\n", "stderr": "", "exit_code": 0, "truncated": False,
        }  # fmt: skip
        cpp = shutil.which("g++") is not None
        if cpp:
            status, body, _ = await post(service, code="int main() {", language="cpp")
            assert (status, body["status"], body["exit_code"]) == (200, "compile_error", None)
    async with service.client.get(f"{service.url}/metrics") as response:
        text = await response.text()
    assert 'plumbline_reward_programs_total{status="ok"} 1.0' in text
    assert 'plumbline_reward_requests_total{code="200",route="/v1/run"} %.1f' % (1 + cpp) in text


async def test_bodies_that_are_refused(service: Served) -> None:
    """Each with the field that is wrong."""
    cases: list[tuple[dict[str, object], int, str]] = [
        ({}, 422, "code: "),
        ({"code": 1}, 422, "code: "),
        ({"code": "1", "language": "klingon"}, 422, "language: "),
        ({"code": "1", "timeout": 61}, 422, "timeout: "),
        ({"code": "1", "timeout": 0}, 422, "timeout: "),
        ({"code": "1", "memory_limit_mb": 0}, 422, "memory_limit_mb: "),
        ({"code": "1", "files": {}}, 422, "files: "),
        ({"code": "\ud800"}, 422, "code: "),
        ({"code": "é" * 131_073}, 413, "code: "),
        ({"code": "1", "stdin": "1" * (2**20 + 1)}, 413, "stdin: "),
        ({"code": "1" * 9_000_000}, 413, "request"),
    ]
    failures = []
    for body, expected, named in cases:
        status, answer, _ = await post(service, **body)
        pending = service.service.programs.pending
        if status != expected or named not in str(answer["error"]) or pending:
            shown = {name: str(value)[:20] for name, value in body.items()}
            failures.append((shown, status, answer, pending))
    assert failures == []


async def test_answers_of_the_route_that_are_no_results(service: Served) -> None:
    first = [asyncio.create_task(post(service, code="1", deadline=2)) for _ in range(2)]
    await until(lambda: service.service.programs.pending == 2)
    status, _, headers = await post(service, code="1")
    assert status == 429
    assert int(headers["Retry-After"]) > 0
    assert [status for status, _, _ in await asyncio.gather(*first)] == [504, 504]
