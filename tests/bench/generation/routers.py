"""Our router in a process of its own, before engines that are there already."""

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import uvloop
from aiohttp import web

from services.generator.router.app import Router
from services.generator.settings import GeneratorSettings
from shared.service.logs import configure_logging


class _Replica:
    def __init__(self, url: str) -> None:
        self.name = self.url = url

    async def ended(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def stop(self) -> None: ...

    def describe(self) -> dict[str, object]:
        return {}


class _Factory:
    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    async def start(self, rank: int, generation: int) -> _Replica:
        return _Replica(self._urls[rank])


def route(pipe: Connection, engines: Sequence[str], model: str) -> None:
    """Serve the router before the engines, and tell the pipe its address."""
    configure_logging("generator", "WARNING")
    settings = GeneratorSettings.model_validate({"router_max_in_flight": 4096, "model": model})
    router = Router(settings, _Factory(engines), len(engines))
    uvloop.run(listen(router.application(), pipe))


async def listen(app: web.Application, pipe: Connection) -> None:
    """Serve an application at a free port, and tell the pipe its address."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pipe.send("http://{}:{}".format(*runner.addresses[0]))
    await asyncio.Event().wait()


@contextmanager
def process(
    target: Callable[..., None], *arguments: object
) -> Iterator[tuple[SpawnProcess, Connection]]:
    """A process for as long as the block lasts; ``target`` gets a pipe and the arguments."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    child.start()
    try:
        yield child, ours
    finally:
        child.terminate()
        child.join()
