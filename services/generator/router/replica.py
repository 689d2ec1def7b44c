"""Replica of the model: the interface for backends, its load, and its slots for requests.

A backend provides :class:`Replica` and :class:`ReplicaFactory`. The router wraps each started
replica in an :class:`Engine`; a request in flight there holds a :class:`ReplicaSlot`.
"""

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shared.errors import ServiceError
from shared.text import one_line


class Replica(Protocol):
    """A running engine with OpenAI's API, and its resources."""

    @property
    def name(self) -> str:
        """Printable ASCII, because the response header ``X-Plumbline-Replica`` has it."""
        ...

    @property
    def url(self) -> str:
        """``http://host:port``, without ``/v1``."""
        ...

    @property
    def start_seconds(self) -> Mapping[str, float]:
        """How long the steps of its start took, for the log; some may be parts of others."""
        ...

    async def ended(self) -> str:
        """Wait until the replica is known to have ended by itself; returns the reason."""
        ...

    async def stop(self) -> None:
        """Free all resources, by force if necessary. Idempotent."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Facts for logs and ``/readyz``, as JSON values."""
        ...


class ReplicaFactory(Protocol):
    async def start(self, rank: int, generation: int) -> Replica:
        """Start replica ``rank`` (from 0); ``generation`` counts its restarts.

        Several ranks start concurrently. A failed or cancelled start frees all its resources.

        Raises:
            NoPlacementError: A machine is missing. The router retries for as long as it takes.
            PlumblineError: The start failed. The router retries with the next generation.
        """
        ...


class NoPlacementError(ServiceError):
    """No machine has room for the replica at the moment."""


# Failed attempts


class FailureReason(StrEnum):
    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    ABORT = "abort"
    EJECTED = "ejected"
    ROUTER = "router"
    """Not the replica's fault: this process ran out of sockets or memory."""


class AttemptError(Exception):
    """A failed attempt on one replica; another replica may answer."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_LOCAL_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


def connection_failed(error: Exception) -> AttemptError:
    """Classify a connection error: the replica failed, or this process is out of resources."""
    local = isinstance(error, OSError) and error.errno in _LOCAL_ERRORS
    reason = FailureReason.ROUTER if local else FailureReason.CONNECTION
    return AttemptError(reason, one_line(error))


# State of a started replica


class Engine:
    """One generation of a replica.

    Attributes:
        last_token: Time (``time.monotonic``) of the last token it is known to have generated.
        doubt: Reason why it gets no new requests, else empty; the next token clears it.
        on_available: Called when it can take requests again.
    """

    def __init__(self, rank: int, generation: int, replica: Replica) -> None:
        self.rank, self.generation = rank, generation
        self.replica = replica
        self.name = replica.name
        self.url = replica.url.rstrip("/")
        self.model = ""
        self.slots: set[ReplicaSlot] = set()
        self.last_used = 0
        self.last_token = float("-inf")
        self.dropped = False
        self.failed_probes = 0
        self.probe_wanted = asyncio.Event()
        self.on_available: Callable[[], None] = lambda: None

    @property
    def doubt(self) -> str:
        if self.failed_probes:
            return "a probe failed"
        return "a connection was dropped" if self.dropped else ""

    @property
    def trusted(self) -> bool:
        return not self.dropped and not self.failed_probes

    def record_token(self) -> None:
        self.last_token = time.monotonic()
        if not self.trusted:
            self.dropped, self.failed_probes = False, 0
            self.on_available()

    def failed(self, failure: AttemptError) -> None:
        """Request a probe after a failed request."""
        if failure.reason in (FailureReason.EJECTED, FailureReason.ROUTER):
            return
        if failure.reason is FailureReason.CONNECTION:
            self.dropped = True
        self.probe_wanted.set()

    def evict(self, reason: str) -> int:
        """Interrupt all requests in flight, to be retried elsewhere; returns their number."""
        for slot in self.slots:
            slot.evict(reason)
        return len(self.slots)


class ReplicaSlot:
    """Slot of a request on an engine, until :meth:`close`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._evicted = ""
        self._timer: asyncio.Timeout | None = None
        engine.slots.add(self)

    def close(self) -> None:
        self.engine.slots.discard(self)

    @asynccontextmanager
    async def until(self, deadline: float) -> AsyncIterator[None]:
        """Limit a block by ``deadline`` (loop time) and by :meth:`evict`.

        Raises:
            AttemptError: The request was evicted.
            TimeoutError: The deadline has passed.
        """
        try:
            async with asyncio.timeout_at(deadline) as self._timer:
                try:
                    if self._evicted:
                        raise TimeoutError
                    yield
                finally:
                    self._timer = None
        except TimeoutError:
            if self._evicted:
                raise AttemptError(FailureReason.EJECTED, self._evicted) from None
            raise

    def evict(self, reason: str) -> None:
        """Interrupt :meth:`until`, by rescheduling its timeout to now."""
        self._evicted = reason
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time())


# Reported state


class ReplicaState(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Running, but gets no new requests until it generates a token again."""
    EJECTED = "ejected"
    RESTARTING = "restarting"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    name: str
    url: str
    in_flight: int
    doubt: str
    facts: Mapping[str, object]

    @classmethod
    def of(cls, engine: Engine) -> "EngineStatus":
        facts = dict(engine.replica.describe())
        return cls(engine.name, engine.url, len(engine.slots), engine.doubt, facts)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """State of a replica for ``/readyz`` and ``/metrics``; no ``engine`` while none is running."""

    replica: int
    state: ReplicaState
    generation: int
    error: str
    engine: EngineStatus | None
