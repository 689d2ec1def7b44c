import json

import pytest
from redis import Redis

from shared.ledger import connect_async, keys
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.reward_hours import HOUR, MOST_HOURS, RewardHours, reward_sessions
from shared.statuses import FinalStatus
from tests.conftest import RedisServer

SESSION = "reward/0123456789abcdef"
NOW = 1_750_000_000.0


def count(hours: RewardHours, status: FinalStatus = FinalStatus.SUCCESS, **fields: object) -> None:
    known = {"accepted": status is FinalStatus.SUCCESS, "score": 0.5, "judge_seconds": 2.0}
    hours.count(status, **{"guarded": False, **known, **fields})  # type: ignore[arg-type]


async def test_two_processes_add_up_and_writing_again_changes_nothing(
    redis: Redis, redis_server: RedisServer
) -> None:
    async with await connect_async(redis_server.url) as connection:
        commands = PipelinedRedis(connection)
        writers = [RewardHours(commands, SESSION, now=lambda: NOW) for _ in range(2)]
        for writer in writers:
            count(writer)
            count(writer, FinalStatus.API_ERROR, score=None, judge_seconds=None)
            await writer.write()
        count(writers[0], FinalStatus.TIMEOUT, guarded=True, judge_seconds=None)
        await writers[0].write()
        await writers[0].write()
    [found] = reward_sessions(redis)
    assert (found.session, found.latest_at) == (SESSION, NOW)
    [(start, totals)] = found.hours.items()
    assert start == NOW // HOUR * HOUR
    assert totals.statuses == {"success": 2, "api_error": 2, "timeout": 1}
    assert (totals.answered, totals.accepted, totals.scored, totals.score) == (5, 2, 3, 1.5)
    assert (totals.guarded, totals.cached, totals.judge_seconds) == (1, 1, 4.0)


async def test_the_record_is_bounded_and_expires(redis: Redis, redis_server: RedisServer) -> None:
    now = [NOW]
    key = keys.RewardKeys(SESSION).hours
    first = int(NOW) // HOUR - MOST_HOURS - 50
    old = {f"{first + i}:old": json.dumps({"accepted": 1}) for i in range(MOST_HOURS + 40)}
    redis.hset(key, mapping=old)
    redis.hset(keys.REWARD_SESSIONS, mapping={"reward/gone": int(NOW) - 200 * 86_400, "x": "y"})
    async with await connect_async(redis_server.url) as connection:
        writer = RewardHours(PipelinedRedis(connection), SESSION, now=lambda: now[0])
        count(writer)
        await writer.write()
        now[0] += HOUR
        count(writer)
        await writer.write()
    assert redis.hlen(key) == MOST_HOURS
    assert 0 < redis.ttl(key) <= 90 * 86_400
    assert redis.hkeys(keys.REWARD_SESSIONS) == [SESSION.encode()]
    [found] = reward_sessions(redis)
    assert list(found.hours)[-2:] == [NOW // HOUR * HOUR, NOW // HOUR * HOUR + HOUR]


def test_what_others_wrote_is_left_out(redis: Redis) -> None:
    redis.hset(keys.REWARD_SESSIONS, mapping={SESSION: 5, "run-1": 7, "reward/x": "soon"})
    hours = {"1:a": '{"accepted": 3}', "1:b": "torn", "x:c": '{"accepted": -1}', "2:d": "[]"}
    redis.hset(keys.RewardKeys(SESSION).hours, mapping=hours)
    [found] = reward_sessions(redis)
    assert {start: one.accepted for start, one in found.hours.items()} == {HOUR: 3}


async def test_a_failed_write_is_made_up_for(redis: Redis, redis_server: RedisServer) -> None:
    key = keys.RewardKeys(SESSION).hours
    redis.set(key, "not a hash")
    async with await connect_async(redis_server.url) as connection:
        writer = RewardHours(PipelinedRedis(connection), SESSION, now=lambda: NOW)
        count(writer)
        with pytest.raises(Exception, match="WRONGTYPE"):
            await writer.write()
        redis.delete(key)
        await writer.write()
    [found] = reward_sessions(redis)
    assert [one.accepted for one in found.hours.values()] == [1]
