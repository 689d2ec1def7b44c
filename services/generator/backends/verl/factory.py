"""Replicas for the router, each in a process of its own."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from services.generator.backends.verl import leftovers
from services.generator.backends.verl.child import Child
from services.generator.backends.verl.environment import child_environment
from services.generator.backends.verl.messages import HostOrder, ReplicaReady
from services.generator.backends.verl.ray_cluster import RayCluster
from services.generator.backends.verl.self_check import check_self
from shared.config import Config
from shared.errors import ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)
_HERE = "services.generator.backends.verl"
_STOP_SECONDS = 20.0


class VerlReplica:
    """See :class:`services.generator.router.Replica`."""

    def __init__(
        self, child: Child, rank: int, generation: int, tag: str, ready: ReplicaReady
    ) -> None:
        self._child = child
        self._tag = tag
        self._ready = ready
        self._name = f"{ready.facts['engine']}-{rank}" + (f".{generation}" if generation else "")

    @property
    def name(self) -> str:
        return self._name

    @property
    def url(self) -> str:
        return self._ready.url

    @property
    def facts(self) -> dict[str, Any]:
        return self._ready.facts

    def describe(self) -> Mapping[str, object]:
        facts = self._ready.facts
        return {
            "engine": facts["engine"],
            "versions": facts["versions"],
            "host_pid": self._child.pid,
            "tag": self._tag,
        }

    async def stop(self) -> None:
        await end(self._child, self._tag, self._ready.shm)


class VerlReplicaFactory:
    """Starts replicas of one configuration.

    Attributes:
        facts: What the replicas are made of, as the last one to start told it; see ``/info``.
    """

    def __init__(self, config: Config, cluster: RayCluster) -> None:
        self._config = config
        self._cluster = cluster
        self.facts: dict[str, Any] = {}

    async def start(self, rank: int, generation: int) -> VerlReplica:
        """See :class:`services.generator.router.ReplicaFactory`."""
        tag = uuid.uuid4().hex
        child = Child(
            f"{_HERE}.host",
            f"replica {rank}",
            child_environment(self._config),
            replica=rank,
            generation=generation,
        )
        shm: list[str] = []
        try:
            await child.start()
            await child.tell(
                HostOrder(
                    config=self._config,
                    rank=rank,
                    generation=generation,
                    name=tag[:8],
                    tag=tag,
                )
            )
            # Its imports take longer than a cluster's start.
            await child.tell(await self._cluster.join())
            ready = await child.next_event()
            if not isinstance(ready, ReplicaReady):
                raise ServiceError(f"replica {rank} said {ready.kind!r} out of turn")
            shm = ready.shm
            await self._check(ready, rank)
        except BaseException:
            await asyncio.shield(end(child, tag, shm))
            raise
        return VerlReplica(child, rank, generation, tag, ready)

    async def _check(self, ready: ReplicaReady, rank: int) -> None:
        facts = {**ready.facts, "self_check": None}
        try:
            found = await check_self(ready.url, ready.facts["model"]["vocabulary"])
        except ServiceError as error:
            # Whether it generates at all is the router's to find out, before it gets any request.
            log.warning("self-check failed", replica=rank, reason=str(error))
        else:
            facts["self_check"] = found.shown()
            if found.looks_random:
                log.warning(
                    "self-check: this looks like random weights", replica=rank, **found.shown()
                )
            else:
                log.info("self-check", replica=rank, **found.shown())
        self.facts = facts


async def end(child: Child, tag: str, shm: Sequence[str]) -> None:
    """End a replica's host, and remove by force what is left of the replica on this machine."""
    await child.stop(_STOP_SECONDS)
    processes, files = await asyncio.to_thread(leftovers.sweep, tag, shm)
    if processes or files:
        log.info("removed what was left of a replica", processes=processes, files=files)
