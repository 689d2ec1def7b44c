"""Redis behind Sentinel: redis-py's clients of the master, which ask for it at every connection.

redis-py itself opens a connection that broke in a command to the same address again, where a dead
master does not answer, or a former one has become a replica.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Self, cast
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

URL_FORM = "redis+sentinel://USER:PASSWORD@HOST:26379,HOST2:26379/SERVICE/DB"
_SCHEMES = ("redis+sentinel", "rediss+sentinel")
_HOST = re.compile(r"\[?([^\[\]/@\s,]+?)\]?(?::(\d{1,5}))?")
# A sentinel that does not answer is passed over: the next one knows the master as well.
_SENTINEL_SETTINGS: dict[str, Any] = {"socket_connect_timeout": 2.0, "socket_timeout": 2.0}
# Refusals of a server that is not the master for now, which redis-py has no class for: a blocked
# command whose master became a replica, a replica that lost its master, and a master that lost its
# replicas (min-replicas-to-write).
_NOT_NOW = re.compile(r"^(UNBLOCKED|MASTERDOWN|NOREPLICAS)\b")


def is_sentinel_url(url: str) -> bool:
    """Whether a URL of Redis is answered by sentinels."""
    return url.partition("://")[0] in _SCHEMES


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """The parts of ``redis[s]+sentinel://[user:password@]host[:port][,…]/service[/db][?options]``.

    ``sentinel_username`` and ``sentinel_password`` in the query are for the sentinels, user and
    password before the hosts for Redis. Options that begin with ``ssl_`` hold for both.

    Attributes:
        hosts: Name and port of each sentinel.
        service: The name under which the sentinels watch the master.
        options: Settings of connections to Redis: user, password, database, TLS.
        sentinel_options: Settings of connections to the sentinels.
    """

    hosts: list[tuple[str, int]]
    service: str
    options: dict[str, Any] = field(repr=False)
    sentinel_options: dict[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL.

        Raises:
            ValueError: It has another form. No part of it is in the message.
        """
        # Debian's Python, as later ones, refuses brackets that do not begin the only host.
        scheme, _, rest = url.partition("://")
        servers = re.split("[/?#]", rest, maxsplit=1)[0]
        parts = urlsplit(f"{scheme}://hosts{rest[len(servers) :]}")
        userinfo, _, listed = servers.rpartition("@")
        hosts = [_host(text) for text in listed.split(",")]
        service, _, database = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("the name of the service is missing")
        if database and not database.isdecimal():
            raise ValueError("the database is not a number")
        user, _, password = userinfo.partition(":")
        options = {
            name: unquote(text)
            for name, text in (("username", user), ("password", password))
            if text
        } | parse_url(f"redis://localhost/{database}?{parts.query}")  # type: ignore[no-untyped-call]
        del options["host"]
        of_sentinels = {
            name: options.pop(f"sentinel_{name}")
            for name in ("username", "password")
            if f"sentinel_{name}" in options
        }
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        if options.keys() - {*URL_QUERY_ARGUMENT_PARSERS, "username", "password", *tls}:
            raise ValueError("an option is unknown")
        if parts.scheme == "rediss+sentinel":
            options["ssl"] = tls["ssl"] = True
        elif tls:
            raise ValueError("options of TLS need rediss+sentinel://")
        return cls(hosts, unquote(service), options, of_sentinels | tls)


def _host(text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError("the hosts are not HOST:PORT,HOST:PORT")
    port = int(found[2] or 26379)
    if not 0 < port < 65536:
        raise ValueError("a port is not between 1 and 65535")
    return unquote(found[1]), port


def sentinel_client(url: str, **settings: Any) -> Redis:  # noqa: ANN401 - redis-py's settings
    """Return a client of the master that the sentinels of a URL name.

    Args:
        url: As of :class:`SentinelUrl`.
        settings: Of connections to Redis.

    Raises:
        ValueError: The URL has another form.
    """
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    kind = _TLSMasterConnection if options.pop("ssl", False) else _MasterConnection
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        parsed.hosts,
        sentinel_kwargs={
            **_SENTINEL_SETTINGS,
            "retry": Retry(NoBackoff(), 0),
            **parsed.sentinel_options,
        },
    )
    return cast(Redis, sentinel.master_for(parsed.service, connection_class=kind, **options))  # type: ignore[no-untyped-call]


def async_sentinel_client(url: str, **settings: Any) -> AsyncRedis:  # noqa: ANN401 - as above
    """Return an asyncio client of the master, as :func:`sentinel_client` does."""
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    kind = _AsyncTLSMasterConnection if options.pop("ssl", False) else _AsyncMasterConnection
    sentinel = async_sentinel.Sentinel(  # type: ignore[no-untyped-call]
        parsed.hosts,
        sentinel_kwargs={
            **_SENTINEL_SETTINGS,
            "retry": AsyncRetry(NoBackoff(), 0),
            **parsed.sentinel_options,
        },
    )
    client = sentinel.master_for(
        parsed.service, connection_pool_class=_AsyncPool, connection_class=kind, **options
    )
    return cast(AsyncRedis, client)


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


class _AsyncPool(async_sentinel.SentinelConnectionPool):
    """Closes the connections to the sentinels with those to the master."""

    async def aclose(self) -> None:
        await super().aclose()
        sentinels = self.sentinel_manager.sentinels
        await asyncio.gather(*(one.aclose() for one in sentinels), return_exceptions=True)
