"""`make bench-router`: CPU time and latency that the router adds to a request, without a GPU.

Clients ask a stand-in of an engine, whose answers have the size of vLLM's: directly, through the
router, and through a proxy that only copies bodies, which is the floor for this HTTP library. All
of them are processes of their own. Where the machine has fewer free cores than that, latencies are
too high; CPU time is that of the router's or the proxy's process alone.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil
import uvloop
from aiohttp import web

from services.generator.router.app import serve_router
from services.generator.settings import GeneratorSettings
from shared.service.access import Access
from shared.service.logs import configure_logging
from shared.service.server import make_application, serve
from shared.service.settings import ServiceSettings

MODEL = "/models/bench"
PROMPT = "Write a function. " * 45  # about 200 tokens
TOKENS = 256
TEXT = "def answer(): return 42\n" * 40
_ENVELOPE = {"id": "cmpl-" + "0" * 32, "created": 1, "model": MODEL, "system_fingerprint": None}
CHOICE = {"index": 0, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
CHAT = {**CHOICE, "message": {"role": "assistant", "content": TEXT, "tool_calls": []}}
USAGE = {"prompt_tokens": 200, "completion_tokens": TOKENS, "total_tokens": 200 + TOKENS}
BODY = json.dumps({**_ENVELOPE, "object": "chat.completion", "choices": [CHAT], "usage": USAGE})
DELTA = {**CHOICE, "finish_reason": None, "delta": {"content": TEXT[: len(TEXT) // TOKENS]}}
EVENT = f"data: {json.dumps({**_ENVELOPE, 'choices': [DELTA]})}\n\n".encode()
_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Load:
    """``seconds`` is the time over which the clients begin."""

    requests: int
    concurrency: int
    stream: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds of a request, requests a second, and CPU milliseconds per request."""

    median: float
    p99: float
    rate: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Side:
    """An address that is asked for a model; ``pid`` is the process between, if there is one."""

    url: str
    model: str
    pid: int | None = None

    def cpu(self) -> float:
        if self.pid is None:
            return 0.0
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


class Replica:
    name = "bench"

    def __init__(self, url: str) -> None:
        self.url = url
        self.start_seconds: Mapping[str, float] = {}

    async def ended(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def stop(self) -> None: ...

    def describe(self) -> dict[str, object]:
        return {}


class Factory:
    def __init__(self, url: str) -> None:
        self._url = url

    async def start(self, rank: int, generation: int) -> Replica:
        return Replica(self._url)


# Processes


def run_engine(seconds: float, port_file: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.read())
        if not asked.get("stream"):
            await asyncio.sleep(seconds)
            return web.Response(text=BODY, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(TOKENS):
            await asyncio.sleep(seconds / TOKENS)
            await response.write(EVENT)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    app = make_application(Access())
    app.router.add_post(_PATH, answer)
    app.router.add_post("/v1/completions", answer)
    app.router.add_get("/v1/models", models)
    _serve(app, port_file)


def run_proxy(engine: str, port_file: str) -> None:
    async def session(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as found:
            app[_SESSION] = found
            yield

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Content-Type": "application/json"}
        async with request.app[_SESSION].post(engine + _PATH, data=body, headers=headers) as found:
            if found.content_type == "application/json":
                return web.Response(body=await found.read(), content_type=found.content_type)
            response = web.StreamResponse(headers={"Content-Type": found.content_type})
            await response.prepare(request)
            async for block in found.content.iter_any():
                await response.write(block)
            return response

    app = make_application(Access())
    app.cleanup_ctx.append(session)
    app.router.add_post(_PATH, answer)
    _serve(app, port_file)


_SESSION = web.AppKey("session", aiohttp.ClientSession)


def _serve(app: web.Application, port_file: str) -> None:
    configure_logging("bench", "WARNING")
    os.environ["PLUMBLINE_PORT_FILE"] = port_file
    uvloop.run(serve(app, ServiceSettings()))


def run_router(engine: str, port_file: str) -> None:
    configure_logging("generator", "WARNING")
    os.environ["PLUMBLINE_PORT_FILE"] = port_file
    # A name of its own, so that the one in the body has to be replaced.
    settings = GeneratorSettings.model_validate({"model": "bench", "router_max_in_flight": 4096})
    uvloop.run(serve_router(settings, Factory(engine), 1))


@contextmanager
def process(
    folder: Path, target: Callable[..., None], *arguments: object
) -> Iterator[tuple[str, int]]:
    """A child's address and process id."""
    port_file = folder / target.__name__
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=target, args=(*arguments, str(port_file)))
    child.start()
    try:
        while not port_file.exists():
            assert child.is_alive()
            time.sleep(0.05)
        assert child.pid is not None
        yield f"http://127.0.0.1:{port_file.read_text().strip()}", child.pid
    finally:
        child.terminate()
        child.join()


@contextmanager
def services(seconds: float) -> Iterator[Mapping[str, Side]]:
    """An engine whose answers take so long, and the ways to it."""
    with (
        TemporaryDirectory() as name,
        process(Path(name), run_engine, seconds) as (engine, _),
        process(Path(name), run_proxy, engine) as (proxy, proxy_pid),
        process(Path(name), run_router, engine) as (router, router_pid),
    ):
        asyncio.run(wait_until_ready(router))
        yield {
            "direct": Side(engine, MODEL),
            "proxy": Side(proxy, MODEL, proxy_pid),
            "router": Side(router, "bench", router_pid),
        }


async def wait_until_ready(router: str) -> None:
    async with aiohttp.ClientSession() as session:
        while (await session.get(f"{router}/readyz")).status != 200:
            await asyncio.sleep(0.05)


# Measurement


async def measure(side: Side, load: Load) -> Figures:
    messages = [{"role": "user", "content": PROMPT}]
    asked = {"model": side.model, "messages": messages, "stream": load.stream}
    body = json.dumps({**asked, "max_tokens": TOKENS, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        # Spread over the time of an answer: together, they would measure how long a burst takes.
        await asyncio.sleep(load.seconds * number / load.concurrency)
        for _ in left:
            began = time.perf_counter()
            async with session.post(side.url + _PATH, data=body, headers=headers) as response:
                await response.read()
                assert response.status == 200
            times.append(time.perf_counter() - began)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for requests in (load.concurrency, load.requests):  # the first ones open connections
            times: list[float] = []
            left = iter(range(requests))
            cpu, began = side.cpu(), time.perf_counter()
            await asyncio.gather(*(client(session, number) for number in range(load.concurrency)))
            wall, cpu = time.perf_counter() - began, side.cpu() - cpu
    times.sort()
    median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    return Figures(median * 1e3, p99 * 1e3, len(times) / wall, cpu / len(times) * 1e3)


def compare(sides: Mapping[str, Side], rounds: int, load: Load) -> Mapping[str, Figures]:
    """Measure all sides in turns; prints and returns the medians of the rounds."""
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(uvloop.run(measure(side, load)))
    kind = "streamed" if load.stream else "whole"
    print(f"\n{load.concurrency} at a time, {kind} ({load.requests} requests, {rounds} rounds)")
    medians = {name: _median(figures) for name, figures in found.items()}
    for name, one in medians.items():
        print(
            f"  {name}: median {one.median:.2f} ms, p99 {one.p99:.2f} ms, "
            f"{one.rate:.1f} a second, CPU {one.cpu:.3f} ms a request"
        )
    return medians


def _median(figures: Sequence[Figures]) -> Figures:
    def of(name: str) -> float:
        return statistics.median(getattr(one, name) for one in figures)

    return Figures(of("median"), of("p99"), of("rate"), of("cpu"))


def print_share(kind: str, milliseconds: float, tokens_per_second: float) -> None:
    """How much of its core the event loop needs for so many tokens a second."""
    for tokens in (TOKENS, 2 * TOKENS):
        # A streamed answer costs by the token, any other by the request.
        cost = milliseconds * (tokens / TOKENS if kind == "streamed" else 1)
        share = tokens_per_second / tokens * cost / 1e3
        print(f"  {kind}, {tokens} tokens an answer: {share:.0%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="time an answer takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tokens-per-second", type=float, default=160_000, help="of all replicas")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} cores, load {load}, an answer takes {options.seconds} s")
    many, rounds, seconds = options.concurrency, options.rounds, options.seconds
    with services(seconds) as sides:
        whole = compare(sides, rounds, Load(many * 10, many, seconds=seconds))
        streamed = compare(sides, rounds, Load(many, many, stream=True, seconds=seconds))
    with services(0.0) as sides:
        print("\nan answer takes no time:")
        compare(sides, rounds, Load(300, 1))
        compare(sides, rounds, Load(1500, many))
    print(f"\nthe router's event loop at {options.tokens_per_second:,.0f} tokens a second:")
    print_share("whole", whole["router"].cpu, options.tokens_per_second)
    print_share("streamed", streamed["router"].cpu, options.tokens_per_second)


if __name__ == "__main__":
    main()
