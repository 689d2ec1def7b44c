"""Ray cluster of the replicas: the configured one, or a local one in a child process.

Run with ``python -m``, this module is that child process. It reads a ``ClusterSpec``, starts a
cluster on this machine only, reports ``ClusterReady``, and stops the cluster when its standard
input is closed.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from services.generator.backends.verl.child import Child
from services.generator.backends.verl.engine_config import LOOPBACK, child_environment
from services.generator.backends.verl.messages import (
    Cluster,
    ClusterReady,
    ClusterSpec,
    EventWriter,
    Failed,
    Phase,
)
from shared.config import Config
from shared.errors import ConfigError, PlumblineError, ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)
_MODULE = "services.generator.backends.verl.ray_cluster"
# After a replica exits, the cluster needs a moment to free its resources.
_OWN_PLACEMENT_SECONDS = 30.0
# Logical CPUs for Ray's scheduler, of which verl requests two per GPU; nothing is pinned to cores.
_CPUS_PER_GPU = 4
# Ray's processes keep writing for a moment after they were terminated.
_REMOVE_SECONDS = 5.0
# Only small objects go through Ray's object store here.
_OBJECT_STORE_BYTES = 128 << 20


class RayCluster:
    """Starts a cluster on first use, and restarts it after a crash."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._child: Child | None = None
        self._address = ""
        self._folder = ""
        self._refusal: ConfigError | None = None
        self._lock = asyncio.Lock()

    async def join(self) -> Cluster:
        """Return the cluster's address, and start the cluster if necessary.

        Raises:
            ServiceError: It cannot be started.
            ConfigError: This machine has too few GPUs, which a retry does not change.
        """
        verl = self._config.generation.verl
        if verl.ray_address is not None:
            return Cluster(address=verl.ray_address, placement_timeout=verl.placement_timeout)
        async with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if self._child is None or not self._child.running:
                await self._start()
        timeout = min(verl.placement_timeout, _OWN_PLACEMENT_SECONDS)
        return Cluster(address=self._address, placement_timeout=timeout)

    async def close(self) -> None:
        if self._child is not None:
            await self._child.stop()
            await asyncio.to_thread(_remove, self._folder)
            self._child = None

    async def _start(self) -> None:
        if self._child is not None:
            log.error("Ray cluster died, restarting it")
            await self.close()
        # A short path, because paths of Unix sockets are limited to about 100 bytes.
        try:
            self._folder = tempfile.mkdtemp(prefix="pl-ray-", dir="/tmp")
        except OSError as error:
            raise ServiceError(f"Ray has no folder in /tmp: {error}") from None
        gpus = self._config.trainer.n_gpus_per_node
        child = Child(_MODULE, "Ray", child_environment(self._config))
        self._child = child
        try:
            await child.start()
            shown = gpus if self._config.generation.verl.cpu_engine else None
            cpus = _CPUS_PER_GPU * gpus
            await child.send(ClusterSpec(folder=self._folder, gpus=shown, cpus=cpus, needed=gpus))
            ready = await child.expect(ClusterReady)
        except BaseException as error:
            if isinstance(error, ConfigError):
                self._refusal = error
            await asyncio.shield(self.close())
            raise
        self._address = ready.address


def _remove(folder: str) -> None:
    deadline = time.monotonic() + _REMOVE_SECONDS
    while Path(folder).exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


# The child process


def main() -> int:
    events = EventWriter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    spec = ClusterSpec.model_validate_json(sys.stdin.readline())
    try:
        _run(spec, events)
    except PlumblineError as error:
        events.send(Failed(reason=str(error), refused=isinstance(error, ConfigError)))
        return error.exit_code
    return 0


def _run(spec: ClusterSpec, events: EventWriter) -> None:
    try:
        import ray
    except ImportError as error:
        raise ServiceError(f"Ray is not installed here ({error}); see docs/generation.md") from None
    began = time.monotonic()
    try:
        context: Any = ray.init(
            address="local",
            num_cpus=spec.cpus,
            num_gpus=spec.gpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address=LOOPBACK,
            _temp_dir=spec.folder,
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Ray has installed its own handler
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if gpus < spec.needed:
            raise ConfigError(
                f"asked for {spec.needed} GPUs (trainer.n_gpus_per_node), and there are {gpus} "
                "on this machine"
            )
        events.send(Phase(phase="ray", seconds=round(time.monotonic() - began, 2)))
        events.send(ClusterReady(address=context.address_info["gcs_address"]))
        sys.stdin.read()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
