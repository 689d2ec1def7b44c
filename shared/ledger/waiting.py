"""A service's start while Redis is not there, or refuses it."""

import time

from redis import Redis

from shared.errors import ServiceError
from shared.ledger.connection import connect
from shared.service.health import StartupServer

_POLL = 1.0


def redis_when_there(url: str, host: str, port: int) -> Redis:
    """Connect to Redis, however long that takes; as long as it cannot be done, stand by.

    Raises:
        ServiceError: The address cannot be bound.
    """
    try:
        return connect(url)
    except ServiceError as error:
        reason = str(error)
    with StartupServer(host, port, reason) as server:
        while True:
            time.sleep(_POLL)
            try:
                return connect(url)
            except ServiceError as error:
                server.set_reason(str(error))
