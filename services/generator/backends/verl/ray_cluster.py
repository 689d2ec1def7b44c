"""The Ray cluster under the replicas: the one that is named, or one begun here."""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from services.generator.backends.verl.child import Child
from services.generator.backends.verl.environment import child_environment
from services.generator.backends.verl.messages import Cluster, ClusterOrder, ClusterReady
from shared.config import Config
from shared.errors import ConfigError, ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)
# A cluster that has just lost a replica takes a moment to know that its place is free.
_OWN_PLACEMENT_SECONDS = 30.0
# In Ray's books, where verl asks for two a GPU: they are not cores, and nobody is kept to them.
_CPUS_PER_GPU = 4
# For which Ray's processes go on writing after their end was asked for.
_REMOVE_SECONDS = 5.0


class RayCluster:
    """Begins a cluster when it is first wanted, and anew where it has died."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._child: Child | None = None
        self._address = ""
        self._folder = ""
        self._refusal: ConfigError | None = None
        self._lock = asyncio.Lock()

    async def join(self) -> Cluster:
        """Say where it is.

        Raises:
            ServiceError: It cannot be begun.
            ConfigError: This machine has too few GPUs, which will not change.
        """
        verl = self._config.generation.verl
        if verl.ray_address is not None:
            return Cluster(address=verl.ray_address, waits=verl.placement_timeout)
        async with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if self._child is None or not self._child.running:
                await self._begin()
        waits = min(verl.placement_timeout, _OWN_PLACEMENT_SECONDS)
        return Cluster(address=self._address, waits=waits)

    async def close(self) -> None:
        if self._child is not None:
            await self._child.stop()
            await asyncio.to_thread(_remove, self._folder)
            self._child = None

    async def _begin(self) -> None:
        if self._child is not None:
            log.error("the Ray cluster has died, beginning another")
            await self.close()
        # Short, because paths of Unix sockets are.
        self._folder = tempfile.mkdtemp(prefix="pl-ray-", dir="/tmp")
        gpus = self._config.trainer.n_gpus_per_node
        child = Child(
            "services.generator.backends.verl.cluster", "Ray", child_environment(self._config)
        )
        self._child = child
        try:
            await child.start()
            await child.tell(
                ClusterOrder(
                    folder=self._folder,
                    gpus=gpus if self._config.generation.verl.cpu_engine else None,
                    cpus=_CPUS_PER_GPU * gpus,
                    needed=gpus,
                )
            )
            ready = await child.next_event()
            if not isinstance(ready, ClusterReady):
                raise ServiceError(f"Ray's keeper said {ready.kind!r} out of turn")
        except BaseException as error:
            if isinstance(error, ConfigError):
                self._refusal = error
            await asyncio.shield(self.close())
            raise
        self._address = ready.address


def _remove(folder: str) -> None:
    give_up = time.monotonic() + _REMOVE_SECONDS
    while Path(folder).exists() and time.monotonic() < give_up:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
