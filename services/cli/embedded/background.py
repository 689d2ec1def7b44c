"""Judge and aggregator of an embedded stack, in an event loop of a thread of the command.

Processes of their own would import the same libraries for longer than a short run takes to judge.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from shared.errors import PlumblineError, ServiceError, UnavailableError
from shared.files import write_text
from shared.ledger import connect
from shared.service.logs import get_logger
from shared.service.settings import load_settings

if TYPE_CHECKING:
    from aiohttp import web

log = get_logger(__name__)

_STOP_SECONDS = 40.0  # a judge drains and gives up on Redis before

# Works until the event is set.
Service = Callable[[asyncio.Event], Awaitable[None]]


class Background:
    """A thread in which services work until :meth:`stop`, or until one of them fails."""

    def __init__(self, *services: Service) -> None:
        # Imported here because the runner's image has no judge. It is faster than asyncio's loop.
        import uvloop

        self._services = services
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._error: PlumblineError | None = None
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that the services work.

        Raises:
            PlumblineError: One of them has failed.
        """
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the services, and wait until they have ended, or for a limited time.

        Without Redis a judge would retry its heartbeats; the thread ends with the process.
        """
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await asyncio.gather(*map(self._work, self._services))

    async def _work(self, service: Service) -> None:
        try:
            await service(self._stop)
        except PlumblineError as error:
            self._error = error
        except Exception as error:
            log.exception("a service of this command failed")
            self._error = ServiceError(f"judging failed: {error!r}; repeat the command to resume")
        finally:
            self._stop.set()


# Decorator of what asks a service: again while a service that has died is restarted.
while_restarted = retry(
    retry=retry_if_exception_type(UnavailableError),
    stop=stop_after_delay(60.0),
    wait=wait_fixed(0.1),
    reraise=True,
)
_connect = while_restarted(connect)


def preload() -> None:
    """Import the judge while the sandbox starts."""
    import_module("services.judge.worker")


async def run_judge(settings: Mapping[str, object], stop: asyncio.Event) -> None:
    """Judge until the event is set; the settings are those of ``JudgeSettings``."""
    from services.judge.settings import JudgeSettings
    from services.judge.worker import JudgeProcess

    loaded = load_settings(JudgeSettings, **settings)
    redis = await asyncio.to_thread(_connect, loaded.redis_url)
    await JudgeProcess(redis, loaded, f"judge-{os.getpid()}").serve(stop)


async def run_aggregator(redis_url: str, index: Path, port_file: Path, stop: asyncio.Event) -> None:
    """Index and publish runs, and serve the page, until the event is set."""
    # Imported in another thread, because verdicts need not wait for it.
    aggregator = await asyncio.to_thread(import_module, "services.aggregator.__main__")
    from services.aggregator.settings import AggregatorSettings
    from shared.service.server import listening

    settings = load_settings(AggregatorSettings, redis_url=redis_url, index_dir=index)

    async def serve_page(app: "web.Application") -> None:
        async with listening(app, "127.0.0.1", 0) as port:
            write_text(port_file, f"{port}\n")
            await stop.wait()

    redis = await asyncio.to_thread(_connect, redis_url)
    await aggregator.aggregate(settings, redis, serve_page)
