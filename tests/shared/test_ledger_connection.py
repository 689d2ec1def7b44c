import signal
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from services.cli.embedded.services import redis_binary
from shared.errors import ServiceError
from shared.ledger import Ledger, connect, connection, ping_error
from shared.schemas import SampleId
from shared.service import processes
from tests.conftest import RedisServer
from tests.shared.ledgers import RUN, generation
from tests.waiting import until

SECRET = "s3kret-pa55word"


@pytest.fixture
def free_port() -> int:
    """A port that leaves room for the second one of a cluster, 10,000 above it."""
    while (port := processes.free_port()) > 55_000:
        pass
    return port


def refusal(url: str) -> str:
    with pytest.raises(ServiceError) as caught:
        connect(url)
    message = str(caught.value)
    assert SECRET not in message
    assert "\n" not in message
    return message


def test_nothing_listens(free_port: int) -> None:
    message = refusal(f"redis://:{SECRET}@127.0.0.1:{free_port}/0")
    assert f"redis://***@127.0.0.1:{free_port}/0" in message
    assert "not reachable" in message
    assert "REDIS_URL" in message


def test_a_wrong_password(redis_server: RedisServer) -> None:
    port = urlsplit(redis_server.url).port
    message = refusal(f"redis://:{SECRET}@127.0.0.1:{port}/0")
    assert "refuses the password" in message
    assert f"***@127.0.0.1:{port}" in message


def test_a_server_that_cannot_hold_a_ledger_is_named_with_the_remedy(
    free_port: int, tmp_path: Path
) -> None:
    url = f"redis://127.0.0.1:{free_port}/0"
    own = [redis_binary(), "--port", str(free_port), "--dir", str(tmp_path), "--save", ""]
    for options, named in [
        ("--replicaof 127.0.0.1 1", ["replica", "master (127.0.0.1:1)", "REDIS_URL"]),
        ("--maxmemory-policy allkeys-lru", ["eviction policy allkeys-lru", "noeviction"]),
        ("--cluster-enabled yes", ["cluster mode", "cluster-enabled no"]),
        ("--maxmemory 100kb", ["used its memory", "raise maxmemory"]),
    ]:
        with subprocess.Popen([*own, *options.split()], stdout=subprocess.DEVNULL) as server:
            try:
                client = Redis.from_url(url)
                until(options, client.ping, not_yet=(RedisError,))
                for message in (refusal(url), ping_error(client)):  # the latter is on /readyz
                    for part in named:
                        assert part in message, options
            finally:
                server.kill()


@pytest.mark.parametrize(
    "url",
    ["nonsense", "http://127.0.0.1:6379", "redis://127.0.0.1:port/0", "redis://127.0.0.1/0?ref=x"],
)
def test_no_redis_url(url: str) -> None:
    message = refusal(url)
    assert url in message
    assert "not a Redis URL" in message


def test_writes_ride_out_a_restart(own_redis_server: RedisServer) -> None:
    """Every write that was acknowledged is there, also those that came while it was away."""
    client = connect(own_redis_server.url)
    ledger = Ledger(client, RUN)
    written: list[str] = []
    some = threading.Event()

    def write() -> None:
        for i in range(400):
            ledger.record(generation(f"p{i}"))
            written.append(f"p{i}")
            if i == 50:
                some.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert some.wait(30)
    own_redis_server.kill()
    own_redis_server.start_again()
    writer.join(60)
    assert len(written) == 400
    assert ledger.completed().keys() == {SampleId("d1", name) for name in written}
    assert len(set(ledger.queue.get_job_ids())) == 400
    client.close()


def test_a_server_that_hangs_is_not_waited_for_without_end(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    monkeypatch.setitem(connection._SETTINGS, "socket_timeout", 0.1)
    with connect(own_redis_server.url, retries=1000) as client:
        assert own_redis_server.child.process is not None
        own_redis_server.child.process.send_signal(signal.SIGSTOP)
        with pytest.raises(RedisTimeoutError):
            client.ping()
        own_redis_server.kill()


def test_a_password_that_has_changed_is_not_tried_again(own_redis_server: RedisServer) -> None:
    with connect(own_redis_server.url, retries=1000) as client:
        client.config_set("requirepass", "another")
        client.connection_pool.disconnect()
        with pytest.raises(AuthenticationError):
            client.ping()


def test_no_part_of_a_password_is_in_a_message_about_the_url() -> None:
    for url in ("redis://:secret/part@host:1/0", "redis//:secret@h", "redis:/:secret@h:1/0"):
        with pytest.raises(ServiceError, match="is not a Redis URL") as caught:
            connect(url)
        assert "secret" not in str(caught.value)
        assert "part" not in str(caught.value)


def test_a_command_to_a_server_that_hangs_ends_when_the_process_gives_up(
    tmp_path: Path,
) -> None:
    server = RedisServer(tmp_path)
    redis = connect(server.url)
    assert server.child.process is not None
    server.child.process.send_signal(signal.SIGSTOP)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            redis.get("a")
        except (RedisError, OSError, ValueError) as error:  # another thread closed it
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        connections = redis.connection_pool._in_use_connections
        until("the command is under way", lambda: any(c._sock for c in list(connections)))
        connection.give_up(redis)
        asking.join(20)  # a command would wait for 30 s, and be repeated
        assert errors
        server.child.process.send_signal(signal.SIGCONT)
        with connect(server.url) as later:  # another client of the process is not affected
            assert later.get_retry().given_up is False
            assert later.ping()
    finally:
        server.child.process.send_signal(signal.SIGCONT)
        asking.join()
        server.stop()
