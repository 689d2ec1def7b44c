"""Redis behind Sentinel: redis-py's clients of the master, which ask for it at every connection.

redis-py itself opens a connection that broke in a command to the same address again, where a dead
master does not answer, or a former one has become a replica.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Self, cast

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

URL_FORM = "redis+sentinel://USER:PASSWORD@HOST:26379,HOST2:26379/SERVICE/DB"
# A sentinel that does not answer is passed over: the next one names the master as well.
_SENTINEL_SETTINGS: dict[str, Any] = {"socket_connect_timeout": 2.0, "socket_timeout": 2.0}
# Refusals of a server that is not the master at present, which redis-py has no class for: a blocked
# command whose master became a replica, a replica that lost its master, and a master that lost its
# replicas (min-replicas-to-write).
_NOT_NOW = re.compile(r"^(UNBLOCKED|MASTERDOWN|NOREPLICAS)\b")


def is_sentinel_url(url: str) -> bool:
    """Whether a URL of Redis is answered by sentinels."""
    return url.startswith(("redis+sentinel://", "rediss+sentinel://"))


def is_behind_sentinel(redis: Redis) -> bool:
    """Whether a client is one of :func:`sentinel_client`."""
    return isinstance(redis.connection_pool, SentinelConnectionPool)


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """The parts of ``redis[s]+sentinel://[user:password@]host[:port][,…]/service[/db][?options]``.

    The sentinels watch the master under the name ``service``. ``options`` are settings of
    connections to Redis: user and password before the hosts, database, TLS. ``sentinel_options``
    are those to the sentinels: ``sentinel_username`` and ``sentinel_password`` of a query. Options
    that begin with ``ssl_`` hold for both.
    """

    hosts: list[tuple[str, int]]
    service: str
    options: dict[str, Any] = field(repr=False)
    sentinel_options: dict[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL; the message of a ValueError for another form has no part of it."""
        scheme, _, rest = url.partition("://")
        servers, _, rest = rest.partition("/")
        path, _, query = rest.partition("?")
        service, _, database = path.partition("/")
        userinfo, at, hosts = servers.rpartition("@")
        if not service or (database and not database.isdecimal()):
            raise ValueError("the path is not /SERVICE or /SERVICE/DB")
        prefix = f"{scheme.removesuffix('+sentinel')}://{userinfo}{at}"
        try:
            urls = [parse_url(f"{prefix}{host}/{database}?{query}") for host in hosts.split(",")]  # type: ignore[no-untyped-call]
            addresses = [(parsed["host"], parsed.get("port", 26379)) for parsed in urls]
        except (ValueError, KeyError):
            raise ValueError("the hosts are not HOST:PORT,HOST:PORT") from None
        options = {name: value for name, value in urls[0].items() if name not in ("host", "port")}
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        if options.pop("connection_class", None):  # redis-py's, for rediss://
            options["ssl"] = tls["ssl"] = True
        sentinel_options = {
            name: options.pop(f"sentinel_{name}")
            for name in ("username", "password")
            if f"sentinel_{name}" in options
        }
        return cls(addresses, service, options, sentinel_options | tls)


def sentinel_client(url: str, **settings: Any) -> Redis:  # noqa: ANN401 - redis-py's settings
    """Return a client of the master that the sentinels of a :class:`SentinelUrl` name."""
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    kind = _TLSMasterConnection if options.pop("ssl", False) else _MasterConnection
    kwargs = {**_SENTINEL_SETTINGS, "retry": Retry(NoBackoff(), 0), **parsed.sentinel_options}
    sentinel = Sentinel(parsed.hosts, sentinel_kwargs=kwargs)  # type: ignore[no-untyped-call]
    return cast(Redis, sentinel.master_for(parsed.service, connection_class=kind, **options))  # type: ignore[no-untyped-call]


def async_sentinel_client(url: str, **settings: Any) -> AsyncRedis:  # noqa: ANN401 - as above
    """Return an asyncio client of the master, as :func:`sentinel_client` does."""
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    kind = _AsyncTLSMasterConnection if options.pop("ssl", False) else _AsyncMasterConnection
    kwargs = {**_SENTINEL_SETTINGS, "retry": AsyncRetry(NoBackoff(), 0), **parsed.sentinel_options}
    sentinel = async_sentinel.Sentinel(parsed.hosts, sentinel_kwargs=kwargs)  # type: ignore[no-untyped-call]
    return cast(AsyncRedis, sentinel.master_for(parsed.service, connection_class=kind, **options))


def _raise_not_now(error: ResponseError) -> None:
    if _NOT_NOW.search(str(error)):
        raise RedisConnectionError(str(error)) from None


class _MasterConnection(SentinelManagedConnection):
    """A connection that is opened to the master of that moment."""

    def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = False
    ) -> None:
        self.host, self.port = self.connection_pool.get_master_address()
        # The caller retries, and the address may be another one by then.
        super().connect_check_health(check_health, retry_socket_connect=False)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as redis-py's
        try:
            return super().read_response(*args, **kwargs)
        except ResponseError as error:
            _raise_not_now(error)
            raise


class _TLSMasterConnection(_MasterConnection, SentinelManagedSSLConnection):
    pass


class _AsyncMasterConnection(async_sentinel.SentinelManagedConnection):
    """As :class:`_MasterConnection`."""

    async def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = False
    ) -> None:
        if not self.is_connected:
            self.host, self.port = await self.connection_pool.get_master_address()
            await super().connect_check_health(check_health, retry_socket_connect=False)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as redis-py's
        try:
            return await super().read_response(*args, **kwargs)
        except ResponseError as error:
            _raise_not_now(error)
            raise


class _AsyncTLSMasterConnection(
    _AsyncMasterConnection, async_sentinel.SentinelManagedSSLConnection
):
    pass
