"""Programs of tools over real Redis and sandbox: many at once, deadlines, the route."""

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from redis import Redis

from services.judge.sandbox import open_client
from services.reward.models import RefusedError
from services.reward.programs import Programs
from services.reward.settings import RewardSettings
from shared.config import Config
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.programs import Program
from tests.conftest import RedisServer
from tests.reward.servers import Served, served
from tests.waiting import eventually

SLOW = Program(code="import time; time.sleep(60)", timeout=60)


@asynccontextmanager
async def programs(redis_server: RedisServer, url: str) -> AsyncIterator[Programs]:
    config = Config.model_validate({"sandbox": {"url": url}})
    async with (
        await connect_async(redis_server.url) as redis,
        open_client(config, RewardSettings(), PipelinedRedis(redis), "test") as sandbox,
    ):
        yield Programs(config, sandbox)


def permits(redis: Redis) -> int:
    """Permits that are held, and requests that wait for one."""
    keys = redis.keys("plumbline:permits:*")
    return sum(redis.zcard(key) for key in keys if redis.type(key) == b"zset")


async def test_each_request_gets_the_answer_of_its_program(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with (
        programs(redis_server, sandbox_url) as labelled,
        programs(redis_server, sandbox_url) as other,
    ):
        given = [Program(code="print(int(input()) ** 2)", stdin=str(n)) for n in range(20)]
        work = [(labelled, other)[n % 2].run(program, 60) for n, program in enumerate(given)]
        results = await asyncio.gather(*work)
        assert [result.stdout for result in results] == [f"{n * n}\n" for n in range(20)]
        assert (labelled.pending, other.pending) == (0, 0)
    assert permits(redis) == 0


async def test_a_deadline_that_passes_is_504_while_redis_hangs(
    own_redis_server: RedisServer,
) -> None:
    server = own_redis_server.child.process
    assert server is not None
    async with programs(own_redis_server, "http://127.0.0.1:9") as labelled:
        server.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(20):  # far less than the client retries a command
                with pytest.raises(RefusedError) as caught:
                    await labelled.run(Program(code="print(1)"), 0.2)
        finally:
            server.send_signal(signal.SIGCONT)
    assert caught.value.status is HTTPStatus.GATEWAY_TIMEOUT


async def test_a_sandbox_that_is_away_is_503(redis_server: RedisServer) -> None:
    async with programs(redis_server, "http://127.0.0.1:9") as labelled:
        with pytest.raises(RefusedError) as caught:
            await labelled.run(Program(code="print(1)", timeout=1), 0.5)
    assert caught.value.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


# The route


@pytest.fixture
async def service(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> AsyncIterator[Served]:
    async with served(redis, redis_server.url, sandbox_urls=sandbox_url) as running:
        yield running


async def post(service: Served, **body: object) -> tuple[int, dict[str, object], Mapping[str, str]]:
    async with service.client.post(f"{service.url}/v1/run", json=body) as response:
        return response.status, json.loads(await response.read()), response.headers


async def test_the_route(service: Served) -> None:
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
        ({"code": "é" * (2**18 + 1)}, 422, "code: "),
        ({"code": "1", "stdin": "1" * (2**20 + 1)}, 422, "stdin: "),
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


async def test_answers_of_the_route_that_are_no_results(
    service: Served, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that goes and a deadline that passes leave neither program nor permit."""
    monkeypatch.setattr("services.reward.programs.MAX_PENDING", 2)
    first = [asyncio.create_task(post(service, **SLOW.model_dump())) for _ in range(2)]
    await eventually(lambda: service.service.programs.pending == 2 and permits(redis))
    status, _, headers = await post(service, code="1")
    assert status == 429
    assert int(headers["Retry-After"]) > 0
    for task in first:
        task.cancel()
    await eventually(lambda: service.service.programs.pending == 0 and permits(redis) == 0)
    assert (await post(service, **SLOW.model_dump(), deadline=0.5))[0] == 504
    await eventually(lambda: permits(redis) == 0)
