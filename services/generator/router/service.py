"""The router as a process."""

import asyncio
import resource

from services.generator.router.app import Info, RouterServer
from services.generator.router.draining import DrainOnSignal
from services.generator.router.parts import make_parts
from services.generator.router.replica import ReplicaFactory
from services.generator.settings import GeneratorSettings
from shared.service.server import serve

_FILES = 65536


async def serve_router(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, info: Info = dict
) -> None:
    """Start replicas and serve them until SIGTERM or SIGINT, or until none is left.

    The port is bound at once; ``/readyz`` tells when the first replica is there, and requests
    wait for it. On SIGTERM and SIGINT new requests are refused, those in flight finished for up
    to ``router_grace`` seconds, and all replicas ended.

    Raises:
        ServiceError: No replica could be started, all have been given up, or the address cannot be
            bound.
    """
    _raise_file_limit()
    stop = asyncio.Event()
    parts = make_parts(settings, factory, n_replicas, failed=stop)
    app = RouterServer(settings, parts, info).application()
    app.on_startup.append(DrainOnSignal(parts.balancer, settings.router_grace, stop).install)
    await serve(app, host=settings.host, port=settings.port, stop=stop)
    if parts.supervisor.error is not None:
        raise parts.supervisor.error


def _raise_file_limit() -> None:
    """Each request in flight takes two sockets, and many systems begin with 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
