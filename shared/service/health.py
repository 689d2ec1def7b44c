"""Health checks of a service: liveness, readiness, and a threaded server that answers them.

Every service answers ``/healthz`` with 200 while its process runs, and ``/readyz`` with 200 while
it can work, else with 503 and the reason. This module defines the bodies, for the aiohttp services
(:func:`shared.service.server.add_operations`) and for the threaded server below.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from shared.errors import ServiceError
from shared.redaction import redact
from shared.service.logs import get_logger
from shared.service.processes import announce_port

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from shared.service.settings import ServiceSettings

log = get_logger(__name__)

# Connections that the kernel keeps for a process that is busy; it takes no more than its own limit.
BACKLOG = 4096

_ANY_PATH = "/{path:.*}"
# Seconds after which a request may be tried again while a service waits for a dependency.
_RETRY_AFTER = "2"

ALIVE: Mapping[str, object] = {"status": "alive"}

# Returns the reason why the service cannot work, None if it can.
Check = Callable[[], str | None]


class Readiness:
    """Readiness of a service; each change is one log line. Thread-safe.

    Attributes:
        details: Further fields of ``/readyz``, in addition to ``ready`` and ``reason``.
    """

    def __init__(self, *checks: Check, details: Callable[[], Mapping[str, object]] = dict) -> None:
        self.details = details
        self._checks = checks
        self._lock = threading.Lock()
        self._last: str | None = None

    def failure(self) -> str | None:
        """Run the checks, which may block; return the reason of the first one that fails."""
        reason = next((found for check in self._checks if (found := check())), None)
        reason = reason and redact(reason)
        with self._lock:
            if reason and reason != self._last:
                log.error("not ready", reason=reason)
            elif self._last and not reason:
                log.info("ready again")
            self._last = reason
        return reason

    def answer(self, failure: str | None) -> tuple[int, dict[str, object]]:
        """Status and body of ``/readyz`` after :meth:`failure`."""
        if failure:
            return 503, {"ready": False, "reason": failure, **self.details()}
        return 200, {"ready": True, **self.details()}


class HealthServer:
    """Operations endpoints in a thread with an event loop, for a process that has none there.

    With a registry, the server also answers ``/metrics``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        readiness: Readiness,
        registry: "CollectorRegistry | None" = None,
        *,
        settings: "ServiceSettings | None" = None,
    ) -> None:
        """Bind the address.

        Args:
            host: Address to bind.
            port: Port to bind, 0 for a free one.
            readiness: Readiness checks.
            registry: Metrics.
            settings: Allowed hosts and token; by default those of the environment, without a token.

        Raises:
            ServiceError: The address cannot be bound.
            ConfigError: The environment is invalid.
        """
        from shared.service.settings import ServiceSettings, load_settings

        self.readiness = readiness
        self.registry = registry
        self._settings = settings or load_settings(ServiceSettings)
        self._address = host, port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise bind_error(host, port, error) from None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def add_others(self, app: "web.Application") -> None:
        """Add the answer to requests for any other path."""
        from aiohttp import web

        async def unknown(_request: web.Request) -> web.Response:
            return web.json_response({"error": "not found"}, status=404)

        app.router.add_get(_ANY_PATH, unknown)

    def __enter__(self) -> Self:
        self._port = self.port
        self._thread.start()
        announce_port(self._port)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def application(self) -> "web.Application":
        """The endpoints."""
        # Imported here because commands import this module and make no server.
        from shared.service.access import Access
        from shared.service.server import add_operations, make_application

        app = make_application(Access(self._settings.hosts, self._settings.bearer))
        add_operations(app, self.readiness, self.registry)
        self.add_others(app)
        return app

    async def _serve(self) -> None:
        from shared.service.server import listening

        async with listening(self.application(), *self._address, bound=self._socket):
            await self._stop.wait()


class StartupServer(HealthServer):
    """Answers health checks with 503 while the service waits for a dependency."""

    def __init__(
        self, host: str, port: int, reason: str, settings: "ServiceSettings | None" = None
    ) -> None:
        """Bind the address and log the reason; ``settings`` are those of :class:`HealthServer`.

        Raises:
            ServiceError: The address cannot be bound.
        """
        self._reason = reason
        super().__init__(host, port, Readiness(lambda: self._reason), settings=settings)
        self.readiness.failure()

    def set_reason(self, reason: str) -> None:
        """Answer with ``reason`` from now on; a changed reason is logged."""
        self._reason = reason
        self.readiness.failure()

    def add_others(self, app: "web.Application") -> None:
        from aiohttp import web

        async def unavailable(_request: web.Request) -> web.Response:
            body = {"error": self._reason}
            return web.json_response(body, status=503, headers={"Retry-After": _RETRY_AFTER})

        # Every method: a client of the service that is to come takes a 405 for a final answer.
        app.router.add_route("*", _ANY_PATH, unavailable)

    def __enter__(self) -> Self:
        # No port file: its reader would take this port for the port of the started service.
        self._thread.start()
        return self


def bind_error(host: str, port: int, error: OSError) -> ServiceError:
    return ServiceError(
        f"cannot serve on {host}:{port}: {error.strerror or error}; set HOST and PORT"
    )
