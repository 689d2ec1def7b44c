"""Commands of concurrent tasks in one pipeline: order, errors, cancellation, lost scripts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis, Script
from tests.conftest import RedisServer

ECHO = Script("return ARGV[1]")


@pytest.fixture
async def client(redis: Redis, redis_server: RedisServer) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(redis_server.url, retries=1)
    yield client
    await client.aclose()


@pytest.fixture
def pipelined(client: AsyncRedis) -> PipelinedRedis:
    return PipelinedRedis(client)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of commands of each pipeline."""
    sizes: list[int] = []
    execute = Pipeline.execute

    async def counted(pipe: Pipeline, raise_on_error: bool = True) -> list[Any]:
        sizes.append(len(pipe))
        return await execute(pipe, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", counted)
    return sizes


async def test_concurrent_tasks_share_pipelines_and_get_their_own_replies(
    pipelined: PipelinedRedis, sizes: list[int]
) -> None:
    async def work(number: int) -> list[Any]:
        key = f"tests:{number}"
        return await pipelined.send([("SET", key, number), ("GET", key)])

    results = await asyncio.gather(*(work(number) for number in range(50)))
    assert [reply[1] for reply in results] == [str(number).encode() for number in range(50)]
    assert sizes == [100]
    assert await pipelined.send([]) == []


async def test_an_error_reaches_only_the_task_that_caused_it(pipelined: PipelinedRedis) -> None:
    good, bad, script = await asyncio.gather(
        pipelined.send([("SET", "tests:text", "x")]),
        pipelined.send([("GET", "tests:text"), ("LPUSH", "tests:text", 1)]),
        pipelined.run(ECHO, [], ["hello"]),
        return_exceptions=True,
    )
    assert good == [True]
    assert isinstance(bad, ResponseError)
    assert script == b"hello"


async def test_scripts_that_the_server_forgot_are_loaded_again(
    pipelined: PipelinedRedis, redis: Redis
) -> None:
    other = Script("return redis.call('INCR', KEYS[1])")
    for _ in range(2):
        results = await asyncio.gather(
            pipelined.run(ECHO, [], ["a"]),
            pipelined.run(other, ["tests:count"], []),
            pipelined.run(ECHO, [], ["b"]),
            pipelined.send([("INCR", "tests:plain")]),
        )
        assert [results[0], results[2]] == [b"a", b"b"]
        redis.script_flush()
    assert [redis.get("tests:count"), redis.get("tests:plain")] == [b"2", b"2"]


async def test_a_cancelled_task_has_its_commands_sent_and_disturbs_nobody(
    pipelined: PipelinedRedis, redis: Redis
) -> None:
    leaving = asyncio.create_task(pipelined.send([("SET", "tests:sent", 1)]))
    staying = asyncio.create_task(pipelined.send([("SET", "tests:other", 1)]))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    assert leaving.cancelled()
    assert redis.get("tests:sent") == b"1"


def test_tasks_that_are_all_cancelled_can_clean_up(redis: Redis, redis_server: RedisServer) -> None:
    """As when a second signal ends the event loop."""

    async def main() -> None:
        pipelined = PipelinedRedis(await connect_async(redis_server.url))

        async def work(number: int) -> None:
            try:
                while True:
                    await pipelined.send([("INCR", "tests:turns")])
            finally:
                await pipelined.send([("SADD", "tests:left", number)])

        tasks = [asyncio.create_task(work(number)) for number in range(8)]
        while not redis.exists("tests:turns"):
            await asyncio.sleep(0.001)
        assert not any(task.done() for task in tasks)

    asyncio.run(main())  # it ends by cancelling all tasks
    assert redis.scard("tests:left") == 8


async def test_any_other_error_is_one_of_all_that_wait(
    pipelined: PipelinedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that cannot be encoded, for one; nobody may wait for ever."""
    lone = "\ud800"
    async with asyncio.timeout(10):
        results = await asyncio.gather(
            pipelined.send([("SET", "tests:a", lone)]),
            pipelined.send([("PING",)]),
            return_exceptions=True,
        )
    assert all(isinstance(error, UnicodeEncodeError) for error in results)
    assert await pipelined.send([("PING",)]) == [True]
