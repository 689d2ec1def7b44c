"""Clients that find the master through sentinels, and keep finding it."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.sentinel import Sentinel

from shared.errors import ServiceError
from shared.ledger import connect, connect_async, fail_fast, ping_error
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.ledger.sentinel import SentinelUrl
from shared.redaction import redact_address
from shared.service.settings import RedisSettings
from tests.sentinels import Sentinels, sentinels
from tests.waiting import until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with sentinels(tmp_path_factory.mktemp("sentinels")) as started:
        yield started


@pytest.mark.parametrize(
    ("url", "hosts", "options", "of_sentinels"),
    [
        ("redis+sentinel://a/s", [("a", 26379)], {}, {}),
        ("redis+sentinel://a:1,b:2/s/3", [("a", 1), ("b", 2)], {"db": 3}, {}),
        ("redis+sentinel://user:p%40%2C%2F@a:1,[::1]:2/s/0?sentinel_password=x%26y",
         [("a", 1), ("::1", 2)], {"db": 0, "username": "user", "password": "p@,/"},
         {"password": "x&y"}),
        ("rediss+sentinel://:p@a:1/s?ssl_ca_certs=/ca.pem&sentinel_username=u", [("a", 1)],
         {"password": "p", "ssl": True, "ssl_ca_certs": "/ca.pem"},
         {"username": "u", "ssl": True, "ssl_ca_certs": "/ca.pem"}),
    ],
)  # fmt: skip
def test_the_parts_of_a_url(
    url: str,
    hosts: list[tuple[str, int]],
    options: dict[str, object],
    of_sentinels: dict[str, object],
) -> None:
    parsed = SentinelUrl.parse(url)
    assert (parsed.hosts, parsed.service) == (hosts, "s")
    assert (parsed.options, parsed.sentinel_options) == (options, of_sentinels)


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("a:1,b:2", "path is not"),
        ("a:1/s/first", "path is not"),
        ("a:99999/s", "hosts are not"),
        ("a:1,,b:2/s", "hosts are not"),
    ],
)
def test_a_bad_url_is_refused_by_its_part(rest: str, reason: str) -> None:
    with pytest.raises(ServiceError, match="is not a Redis URL") as caught:
        connect(f"redis+sentinel://user:hidden-word@{rest}")
    assert reason in str(caught.value)
    assert "hidden-word" not in str(caught.value)


def test_credentials_of_the_settings_are_in_the_url_and_not_shown() -> None:
    settings = RedisSettings(
        redis_url="redis+sentinel://a:1,b:2/s/0",
        redis_username="judge",
        redis_password="hidden,w@rd",
        redis_sentinel_password="other&w@rd",
    )
    parsed = SentinelUrl.parse(settings.redis_url)
    assert parsed.options == {"db": 0, "username": "judge", "password": "hidden,w@rd"}
    assert parsed.sentinel_options == {"password": "other&w@rd"}
    shown = redact_address(settings.redis_url)
    assert shown.startswith("redis+sentinel://***@a:1,b:2/s/0?")
    assert "rd" not in shown.replace("password", "")


def test_a_service_that_the_sentinels_do_not_know(servers: Sentinels) -> None:
    with pytest.raises(ServiceError, match="none of the sentinels names a master"):
        connect(servers.url.replace("/ledger/", "/nobody/"))


def test_a_wrong_password_of_the_sentinels_is_not_shown(servers: Sentinels) -> None:
    wrong = servers.url.replace("s3ntinel", "wr0ng-one")
    with pytest.raises(ServiceError, match="the password of the sentinels") as caught:
        connect(wrong)
    assert "wr0ng" not in str(caught.value)


def test_a_replica_is_never_taken_for_the_master(
    servers: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a sentinel that was cut off would name it."""
    (replica,) = [server for server in servers.servers if server is not servers.master()]
    monkeypatch.setattr(Sentinel, "discover_master", lambda *_: ("127.0.0.1", replica.port))
    with pytest.raises(ServiceError, match="is a replica"):
        connect(servers.url)


def test_a_master_without_its_replica_is_waited_for(servers: Sentinels) -> None:
    """``min-replicas-to-write``: what one server alone has is not acknowledged."""
    master = servers.master()
    (replica,) = [server for server in servers.servers if server is not master]
    with servers.client(master) as client:
        client.config_set("min-replicas-to-write", 1)
    redis = connect(servers.url)
    replica.kill()
    with fail_fast(redis) as impatient:

        def refused() -> bool:
            with pytest.raises(RedisConnectionError, match="NOREPLICAS"):
                impatient.set("a", 1)
            return True

        # The master counts the replica until it has seen that the connection is closed.
        until("a write is refused", refused, not_yet=(pytest.fail.Exception,))
    written = threading.Thread(target=redis.set, args=("a", 2))
    written.start()
    replica.start()
    written.join(60)
    assert redis.get("a") == b"2"
    redis.config_set("min-replicas-to-write", 0)
    redis.close()


def test_a_failover_is_ridden_out_by_every_kind_of_command(servers: Sentinels) -> None:
    asyncio.run(_ride_out(servers))


async def _ride_out(servers: Sentinels) -> None:
    servers.until_replicated()
    redis = connect(servers.url)
    waiting, shared = await connect_async(servers.url), await connect_async(servers.url)
    commands = PipelinedRedis(shared)
    source = "return redis.call('INCR', KEYS[1])"
    script, async_script = redis.register_script(source), Script(f"{source} -- asyncio")
    assert script(keys=["counted"]) == 1
    assert await commands.run(async_script, ["also"], []) == 1
    async with waiting.pubsub() as notices:
        await notices.subscribe("notices")
        await notices.get_message(timeout=5)
        popped = asyncio.create_task(waiting.blmove("queue", "mine", 30))
        read = asyncio.create_task(waiting.xread({"stream": "0"}, block=20_000))
        await asyncio.sleep(0.1)
        old = servers.master()
        old.kill()
        pipe = redis.pipeline()
        pipe.set("a", 1).set("b", 2)
        assert await asyncio.to_thread(pipe.execute) == [True, True]
        assert servers.master() is not old
        # The new master does not know the scripts.
        assert script(keys=["counted"]) == 2
        assert await commands.run(async_script, ["also"], []) == 2
        redis.rpush("queue", "job")
        redis.xadd("stream", {"a": "b"})
        assert await popped == b"job"
        assert await read
        assert ping_error(redis) is None
        # It comes back as a master, until the sentinels make a replica of it.
        old.start()
        for number in range(50):
            redis.set(f"after {number}", number)
            await asyncio.sleep(0.02)
        with servers.client(servers.master()) as master:
            assert master.exists(*(f"after {number}" for number in range(50))) == 50
        for _ in range(20):
            redis.publish("notices", "heard")
            if (heard := await notices.get_message(True, timeout=1)) is not None:
                break
        assert heard is not None
    await waiting.aclose()
    await shared.aclose()
    redis.close()
