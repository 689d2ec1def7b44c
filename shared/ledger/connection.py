"""Redis connections: clients with retries, health checks, waiting, and the records' version."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar, cast

from redis import ConnectionPool, Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from shared.errors import OutputError, ServiceError, UnavailableError
from shared.ledger import keys
from shared.ledger.sentinel import (
    URL_FORM,
    async_sentinel_client,
    is_sentinel_url,
    sentinel_client,
)
from shared.redaction import redact, redact_address, remember_address
from shared.run_record import VERSION
from shared.service.settings import ServiceSettings
from shared.versions import release

T = TypeVar("T")

# About 40 seconds in all, longer than a restarted server needs to load its append-only file.
RETRIES = 45
# Seconds for which a server that does not answer is waited for, however many retries are left.
PATIENCE = 600.0
# Seconds for an answer to a client that waits for it.
_IMPATIENT = 2.0
_BACKOFF = ExponentialWithJitterBackoff(base=0.05, cap=1.0)
# A connection blocked in a push cannot be shared, so the pool is practically unbounded.
_MAX_CONNECTIONS = 10_000
_SETTINGS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_timeout": 30,
    "retry_on_error": [RedisConnectionError, RedisTimeoutError, BusyLoadingError],
    "health_check_interval": 30,
}


class _Retry(Retry):
    """Retries that end with :data:`PATIENCE`, and at once if the password is wrong.

    All connections of a client share it, so that :func:`give_up` reaches them.
    """

    given_up = False

    def __deepcopy__(self, _memo: object) -> Self:  # redis-py copies it for each connection
        return self

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        end = time.monotonic() + PATIENCE

        def may_pass(error: Exception) -> bool:
            over = self.given_up or time.monotonic() >= end
            if over or isinstance(error, AuthenticationError):
                return False
            return is_retryable is None or is_retryable(error)

        return super().call_with_retry(do, fail, may_pass, with_failure_count)


def give_up(redis: Redis) -> None:
    """End all commands of a client of :func:`connect`, in all threads; nothing is retried."""
    retry = redis.get_retry()
    assert isinstance(retry, _Retry)
    retry.given_up = True
    redis.connection_pool.disconnect()


def connect(url: str, *, retries: int = RETRIES) -> Redis:
    """Connect and check that the server answers.

    A URL is ``redis://``, ``rediss://``, ``unix://``, or ``redis+sentinel://`` for the master that
    sentinels name (see :mod:`shared.ledger.sentinel`). Commands are retried with backoff while the
    server restarts, which is safe because the ledger's writes are idempotent; ``retries`` times,
    for :data:`PATIENCE` at most.

    Raises:
        ServiceError: The URL is invalid, or no Redis server answers there.
        OtherVersionError: Another release wrote a ledger there that this one does not read.
    """
    with _service_errors(url):
        _ping(url)
        return _client(url, retry=_Retry(_BACKOFF, retries), **_SETTINGS)


async def connect_async(url: str, *, retries: int = RETRIES) -> AsyncRedis:
    """Connect an asyncio client; arguments and errors are those of :func:`connect`."""
    with _service_errors(url):
        await asyncio.to_thread(_ping, url)
        retry = AsyncRetry(_BACKOFF, retries)
        settings = {"retry": retry, "max_connections": _MAX_CONNECTIONS, **_SETTINGS}
        if is_sentinel_url(url):
            return async_sentinel_client(url, **settings)
        return AsyncRedis.from_url(url, **settings)


def wait_for_redis(
    url: str, host: str, port: int, *, settings: ServiceSettings | None = None, poll: float = 1.0
) -> Redis:
    """Connect to Redis, and wait for it without limit, ``poll`` seconds between two attempts.

    While waiting, a :class:`HealthServer` with the service's settings answers on ``host:port``.

    Raises:
        ServiceError: The address cannot be bound.
    """
    # Imported here because commands import this module and serve nothing.
    from shared.service.server import HealthServer, Readiness

    reason = ""
    readiness = Readiness(lambda: reason)
    with ExitStack() as stack:
        while True:
            try:
                return connect(url)
            except ServiceError as error:
                first, reason = not reason, str(error)
            readiness.failure()
            if first:
                stack.enter_context(HealthServer(host, port, readiness, settings=settings))
            time.sleep(poll)


def check_server(redis: Redis) -> None:
    """Check that a server can hold a ledger.

    Raises:
        UnavailableError: It is a replica or its memory is full, which may pass.
        ServiceError: It is part of a cluster, or may evict records.
    """
    try:
        info = redis.info()
    except ResponseError:  # not for this user, or not for anybody
        return
    if info.get("role") == "slave":
        raise UnavailableError(
            "Redis is a replica, which takes no writes; name its master "
            f"({info.get('master_host')}:{info.get('master_port')}) in REDIS_URL, or sentinels "
            f"({URL_FORM})"
        )
    if info.get("cluster_enabled"):
        raise ServiceError(
            "Redis is in cluster mode, which spreads the keys of a run over servers; use one "
            "server with cluster-enabled no"
        )
    policy, limit = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", 0)
    if policy != "noeviction":
        raise ServiceError(
            f"Redis has the eviction policy {policy}, which deletes records of a run when its "
            "memory is full; set maxmemory-policy noeviction"
        )
    # A server that refuses writes may have freed a few bytes since.
    if limit and info.get("used_memory", 0) >= limit - limit // 100:
        raise UnavailableError(
            f"Redis has used its memory ({info['used_memory'] >> 20} of {limit >> 20} MiB); raise "
            "maxmemory, or remove runs that are finished (docs/operations.md)"
        )


# Version of the records: that of the run record, in ``plumbline:version``


class OtherVersionError(OutputError):
    """Records in Redis have a version that this release does not read."""


def check_ledger(redis: Redis) -> None:
    """Check the version of the whole ledger, as each service does when it starts.

    Raises:
        OtherVersionError: Another release has written to this ledger.
    """
    try:
        stored, wrote = cast(list[bytes | None], redis.hmget(keys.VERSION, ["records", "release"]))
    except ResponseError as error:
        raise OtherVersionError(
            f"{keys.VERSION} in Redis cannot be read ({error}); if something else than Plumbline "
            "wrote it, delete the key"
        ) from None
    if stored not in (None, str(VERSION).encode()):
        by = f", written by Plumbline {wrote.decode(errors='replace')[:100]}" if wrote else ""
        raise OtherVersionError(
            f"the ledger in Redis has version {stored.decode(errors='replace')[:100]}{by}, but "
            f"this Plumbline ({release()}) reads version {VERSION}; finish it with that release, "
            "or start over beside it (docs/operations.md, Upgrades)"
        )


def claim_ledger(redis: Redis) -> None:
    """Record that this release writes to the ledger.

    Raises:
        OtherVersionError: As :func:`check_ledger`.
    """
    check_ledger(redis)
    redis.hset(keys.VERSION, mapping={"records": VERSION, "release": release()})


def ping_error(redis: Redis) -> str | None:
    """Check the server without retries, as a health check; return the error, or None."""
    client = fail_fast(redis)
    try:
        client.ping()
        check_server(client)
    except ServiceError as error:
        return str(error)
    except RedisError as error:
        return redact(f"Redis: {error}")
    finally:
        client.close()
    return None


def fail_fast(redis: Redis) -> Redis:
    """Return a client of the same server with a short timeout and no retries; callers close it."""
    settings: dict[str, Any] = {
        **redis.get_connection_kwargs(),
        "socket_connect_timeout": _IMPATIENT,
        "socket_timeout": _IMPATIENT,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
    }
    return Redis.from_pool(ConnectionPool(redis.connection_pool.connection_class, **settings))


def _client(url: str, **settings: Any) -> Redis:  # noqa: ANN401 - redis-py's settings
    if is_sentinel_url(url):
        return sentinel_client(url, **settings)
    return Redis.from_url(url, **settings)


@contextmanager
def _service_errors(url: str) -> Iterator[None]:
    """Convert redis-py's exceptions into a ServiceError that names ``url``."""
    remember_address(url)
    shown = redact_address(url)
    try:
        yield
    except (ValueError, TypeError) as error:  # the latter for an unknown option
        # Any part of such a URL may be a password, and the error may quote it, but for sentinels.
        _, at, host = url.rpartition("@")
        reason = f": {error}" if not at or is_sentinel_url(url) else ""
        shown = f"***@{host}" if at and "?" not in host else shown
        raise ServiceError(
            f"REDIS_URL {shown} is not a Redis URL (redis://HOST:PORT/DB or {URL_FORM}){reason}"
        ) from None
    except MasterNotFoundError:  # its text has the settings of the connections
        raise UnavailableError(
            f"Redis at {shown} is not reachable: none of the sentinels names a master; check that "
            "they run, the name of the service, and the password of the sentinels"
        ) from None
    except AuthenticationError as error:
        raise ServiceError(f"Redis at {shown} refuses the password: {error}") from None
    except RedisError as error:
        raise UnavailableError(
            f"Redis at {shown} is not reachable: {error}; start it, set REDIS_URL, "
            "or use --embedded"
        ) from None


def _ping(url: str) -> None:
    """Check, without retries, that the server answers and can hold this release's ledger."""
    retry = Retry(NoBackoff(), 0)
    with _client(url, socket_connect_timeout=5, socket_timeout=5, retry=retry) as client:
        client.ping()
        check_server(client)
        check_ledger(client)
