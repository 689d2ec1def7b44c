"""A Redis client that rides out a restart of the server."""

import re
import time
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from shared.errors import ServiceError

# About 40 seconds in all: longer than a server needs to load its append-only file again.
_RETRIES = 45


def connect(url: str, patience: float = 0.0) -> Redis:
    """Connect and check that the server answers.

    Commands are tried again while the server is away; every write of the ledger may safely
    arrive twice.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        patience: Seconds to wait for a server that is not there yet.

    Raises:
        ServiceError: The URL is none, or nothing that speaks Redis answers there.
    """
    try:
        _ping(url, time.monotonic() + patience)
        client = Redis.from_url(
            url,
            socket_connect_timeout=5,
            socket_timeout=30,
            retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), _RETRIES),
            retry_on_error=[RedisConnectionError, RedisTimeoutError, BusyLoadingError],
            health_check_interval=30,
        )
    except ValueError as error:
        raise ServiceError(
            f"REDIS_URL {_hide_password(url)} is not a Redis URL (redis://HOST:PORT/DB): "
            f"{_hide_password(str(error))}"
        ) from None
    except AuthenticationError as error:
        raise ServiceError(
            f"Redis at {_hide_password(url)} refuses the password: {error}"
        ) from None
    except RedisError as error:
        raise ServiceError(
            f"Redis at {_hide_password(url)} is not reachable: {error}; start it, set REDIS_URL, "
            "or use --embedded"
        ) from None
    return client


def trouble(redis: Redis) -> str | None:
    """Say why the server does not answer right now; None if it does. It does not wait for it."""
    settings: dict[str, Any] = {
        **redis.get_connection_kwargs(),
        "socket_connect_timeout": 2,
        "socket_timeout": 2,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
    }
    pool = ConnectionPool(redis.connection_pool.connection_class, **settings)
    try:
        Redis(connection_pool=pool).ping()
    except RedisError as error:
        return f"Redis: {error}"
    finally:
        pool.disconnect()
    return None


def _ping(url: str, give_up: float) -> None:
    client = Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5)
    while True:
        try:
            client.ping()
            return
        except (RedisConnectionError, RedisTimeoutError) as error:
            if isinstance(error, AuthenticationError) or time.monotonic() > give_up:
                raise
        time.sleep(0.2)


def _hide_password(text: str) -> str:
    """A URL, or a message that quotes one, without its password."""
    text = re.sub(r"//[^@/\s]*@", "//***@", text)
    return re.sub(r"(password=)[^&\s]*", r"\1***", text)
