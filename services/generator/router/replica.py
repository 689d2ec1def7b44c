"""Replica of the model: the interface for backends, and its state in the router."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from shared.errors import ServiceError


class Replica(ABC):
    """A running engine with OpenAI's API, its resources, and its state in the router.

    The ``name`` is printable ASCII, because the response header ``X-Plumbline-Replica`` has it; the
    ``url`` has no ``/v1``.

    Attributes:
        rank: Its place among the replicas, from 0; the router sets it.
        model: The engine's own name of the model; the health check sets it.
        in_flight: Requests that have a slot on it.
        requests: The requests being sent; :meth:`evict` lets them time out.
        last_token: Time (``time.monotonic``) of the last token that it generated.
        suspect: A connection broke or a probe failed, so it gets no requests until its next token.
        on_available: Called when it can take requests again.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.rank = 0
        self.model = ""
        self.in_flight = 0
        self.requests: set[asyncio.Timeout] = set()
        self.last_used = 0
        self.last_token = float("-inf")
        self.suspect = False
        self.probe_wanted = asyncio.Event()
        self.on_available: Callable[[], None] = lambda: None

    @abstractmethod
    async def ended(self) -> str:
        """Wait until the replica has ended by itself; returns the reason."""

    @abstractmethod
    async def stop(self) -> None:
        """Free all resources, by force if necessary. Idempotent."""

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Facts for logs and ``/readyz``, as JSON values."""

    def record_token(self) -> None:
        self.last_token = time.monotonic()
        if self.suspect:
            self.suspect = False
            self.on_available()

    def evict(self) -> int:
        """Interrupt all requests in flight; returns their number."""
        now = asyncio.get_running_loop().time()
        for request in self.requests:
            if not request.expired():
                request.reschedule(now)
        return len(self.requests)


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


class ReplicaState(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Running, but gets no new requests until it generates a token again."""
    EJECTED = "ejected"
    RESTARTING = "restarting"
    GIVEN_UP = "given_up"
