"""Redis behind Sentinel: clients that ask the sentinels for the master at every connection.

A connection of redis-py's own classes that breaks in a command is opened again to the same address,
and it is not asked whether a master answers there. A client would wait for a dead master, or write
to the old one until it has become a replica, and these writes are lost.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Self, cast
from urllib.parse import unquote

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, ResponseError
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

URL_FORM = "redis+sentinel://USER:PASSWORD@HOST:26379,HOST2:26379/SERVICE/DB"
_PORT = 26379
_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")
# What holds for connections to the sentinels, too.
_TLS = re.compile(r"ssl_\w+")
# A sentinel that does not answer is passed over: the next one knows the master as well.
_SENTINEL_SETTINGS: dict[str, Any] = {"socket_connect_timeout": 2.0, "socket_timeout": 2.0}
# A replica's refusals that redis-py has no class for: of Redis 6 in a script, of a blocked command
# whose master became a replica, of one that lost its master, and of a master with
# min-replicas-to-write that has lost its replicas.
_NOT_NOW = re.compile(r"-READONLY |^(UNBLOCKED|MASTERDOWN|NOREPLICAS)\b")


def is_sentinel_url(url: str) -> bool:
    """Whether a URL of Redis is answered by sentinels."""
    return url.startswith(_SCHEMES)


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """The parts of a ``redis+sentinel://`` URL.

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
        """Parse ``redis[s]+sentinel://[user:password@]host[:port][,…]/service[/db][?options]``.

        ``sentinel_username`` and ``sentinel_password`` in the query are for the sentinels, user and
        password before the hosts for Redis. Options that begin with ``ssl_`` hold for both.

        Raises:
            ValueError: It has another form. No part of it is in the message.
        """
        scheme, _, rest = url.partition("://")
        rest, _, query = rest.partition("?")
        userinfo, _, rest = rest.rpartition("@")
        listed, *path = rest.rstrip("/").split("/")
        hosts = [_host(one) for one in listed.split(",")]
        if not path or not path[0]:
            raise ValueError("the name of the service is missing")
        database = path[1] if len(path) > 1 else ""
        if len(path) > 2 or (database and not database.isdecimal()):
            raise ValueError("the database is not a number")
        options = parse_url(f"redis://localhost/{database}?{query}")  # type: ignore[no-untyped-call]
        del options["host"]
        user, colon, password = userinfo.partition(":")
        credentials = {"username": unquote(user), "password": unquote(password) if colon else ""}
        options |= {name: value for name, value in credentials.items() if value}
        of_sentinels = {
            name: value
            for name in ("username", "password")
            if (value := options.pop(f"sentinel_{name}", None))
        }
        for name in options:
            known = name in URL_QUERY_ARGUMENT_PARSERS or name in ("username", "password")
            if not (known or _TLS.fullmatch(name)):
                raise ValueError("an option is unknown")
        tls = {name: value for name, value in options.items() if _TLS.fullmatch(name)}
        if scheme == "rediss+sentinel":
            options["ssl"] = tls["ssl"] = True
        elif tls:
            raise ValueError("options of TLS need rediss+sentinel://")
        return cls(hosts, unquote(path[0]), options, of_sentinels | tls)

    def of_sentinels(self, retry: Retry | AsyncRetry) -> dict[str, Any]:
        """All settings of connections to the sentinels."""
        return {**_SENTINEL_SETTINGS, **self.sentinel_options, "retry": retry}


def _host(text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError("the hosts are not HOST:PORT,HOST:PORT")
    port = int(found[2] or _PORT)
    if not 0 < port < 65536:
        raise ValueError("a port is not between 1 and 65535")
    return unquote(found[1]).strip("[]"), port


def sentinel_client(url: str, **settings: Any) -> Redis:  # noqa: ANN401 - redis-py's settings
    """Return a client of the master.

    Args:
        url: As of :meth:`SentinelUrl.parse`.
        settings: Of connections to Redis.

    Raises:
        ValueError: The URL has another form.
    """
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    tls = options.pop("ssl", False)
    asked = _Sentinels(  # type: ignore[no-untyped-call]
        parsed.hosts,
        sentinel_kwargs=parsed.of_sentinels(Retry(NoBackoff(), 1)),
    )
    kind = _TLSMasterConnection if tls else _MasterConnection
    return cast(Redis, asked.master_for(parsed.service, connection_class=kind, **options))  # type: ignore[no-untyped-call]


def async_sentinel_client(url: str, **settings: Any) -> AsyncRedis:  # noqa: ANN401 - as above
    """Return an asyncio client of the master, as :func:`sentinel_client` does."""
    parsed = SentinelUrl.parse(url)
    options = {**settings, **parsed.options}
    tls = options.pop("ssl", False)
    asked = _AsyncSentinels(  # type: ignore[no-untyped-call]
        parsed.hosts,
        sentinel_kwargs=parsed.of_sentinels(AsyncRetry(NoBackoff(), 1)),
    )
    client = asked.master_for(
        parsed.service,
        connection_pool_class=_AsyncPool,
        connection_class=_AsyncTLSMasterConnection if tls else _AsyncMasterConnection,
        **options,
    )
    return cast(AsyncRedis, client)


def _check_role(reply: object) -> None:
    """Check what ``HELLO`` answers, a mapping or a list of names and values.

    Raises:
        RedisConnectionError: The server is a replica.
    """
    pairs = reply.items() if isinstance(reply, dict) else _pairs(reply)
    facts = {_text(name): value for name, value in pairs}
    if "role" in facts and _text(facts["role"]) != "master":
        raise RedisConnectionError("what the sentinels call the master is a replica")


def _pairs(reply: object) -> list[tuple[object, object]]:
    values = list(reply) if isinstance(reply, list | tuple) else []
    return list(zip(values[::2], values[1::2], strict=False))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Sentinels(Sentinel):
    """redis-py's error shows all settings of all connections."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        try:
            return cast(tuple[str, int], super().discover_master(service_name))  # type: ignore[no-untyped-call]
        except MasterNotFoundError:
            raise MasterNotFoundError(_no_master(len(self.sentinels), service_name)) from None


class _AsyncSentinels(async_sentinel.Sentinel):
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        try:
            return cast(tuple[str, int], await super().discover_master(service_name))
        except async_sentinel.MasterNotFoundError:
            raise async_sentinel.MasterNotFoundError(
                _no_master(len(self.sentinels), service_name)
            ) from None


def _no_master(sentinels: int, service: str) -> str:
    return f"none of {sentinels} sentinels names a master {service!r} that is up"


class _FollowsMaster(SentinelManagedConnection):
    """A connection that is opened to the master of that moment."""

    def _connect_retry(self) -> None:
        if not self._sock:
            self.connect_check_health()

    def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = False
    ) -> None:
        # The caller retries, and the address may be another one by then.
        super().connect_check_health(check_health, retry_socket_connect=False)

    def _connect(self) -> Any:  # noqa: ANN401 - a socket
        self.host, self.port = self.connection_pool.get_master_address()
        return super()._connect()  # type: ignore[no-untyped-call]

    def on_connect_check_health(self, check_health: bool = True) -> None:
        super().on_connect_check_health(check_health)
        self.send_command("HELLO", check_health=False)  # type: ignore[no-untyped-call]
        try:
            reply = self.read_response()
        except ReadOnlyError:
            raise
        except ResponseError:  # a user that may not ask, or a Redis that is older than HELLO
            return
        _check_role(reply)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as redis-py's
        try:
            return super().read_response(*args, **kwargs)
        except ResponseError as error:
            if not _NOT_NOW.search(str(error)):
                raise
            self.disconnect()  # type: ignore[no-untyped-call]
            raise RedisConnectionError(str(error)) from None


class _MasterConnection(_FollowsMaster):
    pass


class _TLSMasterConnection(_FollowsMaster, SentinelManagedSSLConnection):
    pass


class _AsyncFollowsMaster(async_sentinel.SentinelManagedConnection):
    """As :class:`_FollowsMaster`."""

    async def _connect_retry(self) -> None:
        if not self.is_connected:
            await self.connect_check_health()

    async def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = False
    ) -> None:
        await super().connect_check_health(check_health, retry_socket_connect=False)

    async def _connect(self) -> None:
        self.host, self.port = await self.connection_pool.get_master_address()
        await super()._connect()  # type: ignore[no-untyped-call]

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        await super().on_connect_check_health(check_health)
        await self.send_command("HELLO", check_health=False)
        try:
            reply = await self.read_response()
        except ReadOnlyError:
            raise
        except ResponseError:
            return
        _check_role(reply)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as redis-py's
        try:
            return await super().read_response(*args, **kwargs)
        except ResponseError as error:
            if not _NOT_NOW.search(str(error)):
                raise
            await self.disconnect()
            raise RedisConnectionError(str(error)) from None


class _AsyncMasterConnection(_AsyncFollowsMaster):
    pass


class _AsyncTLSMasterConnection(_AsyncFollowsMaster, async_sentinel.SentinelManagedSSLConnection):
    pass


class _AsyncPool(async_sentinel.SentinelConnectionPool):
    """Closes the connections to the sentinels with those to the master."""

    async def aclose(self) -> None:
        await super().aclose()
        sentinels = self.sentinel_manager.sentinels
        await asyncio.gather(*(one.aclose() for one in sentinels), return_exceptions=True)
