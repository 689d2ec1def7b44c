"""`make bench-router`: what the router adds to a request, without a GPU.

    python -m tests.bench.router --replicas 1,4,8 --rates 250,1000,2000

Stand-ins of engines, whose answers have the size of vLLM's, are asked at a steady rate: directly
and through the router, in turns. Engines, router and clients are processes of their own, so
latencies count only where each has a core; the CPU time is the router's alone.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import psutil
import uvloop
from aiohttp import web

from tests.bench.generation.routers import listen, process, route

MODEL = "/models/bench"
BODY = json.dumps(
    {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Write a function. " * 45}],
        "max_tokens": 256,
    }
).encode()
ANSWER = json.dumps(
    {
        "id": "chatcmpl-" + "0" * 32,
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "def answer(): return 42\n" * 40},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 256, "total_tokens": 456},
    }
)
_PATH = "/v1/chat/completions"
_CLIENTS = 4


def engine(pipe: Connection) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=ANSWER, content_type="application/json")

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    app = web.Application()
    app.add_routes([web.post(_PATH, answer), web.post("/v1/completions", answer)])
    app.add_routes([web.get("/v1/models", models)])
    uvloop.run(listen(app, pipe))


def client(pipe: Connection) -> None:
    """Asks as the pipe says: addresses, requests a second, seconds; sends back the seconds each."""
    while order := pipe.recv():
        pipe.send(uvloop.run(_ask(*order)))


async def _ask(urls: Sequence[str], rate: float, seconds: float) -> list[float]:
    took: list[float] = []

    async def send(session: aiohttp.ClientSession, url: str, due: float) -> None:
        async with session.post(url + _PATH, data=BODY, headers=headers) as response:
            await response.read()
            response.raise_for_status()
        took.append(time.perf_counter() - due)

    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as requests,
    ):
        began = time.perf_counter()
        for number in range(int(rate * seconds)):
            # From when it was due, so that a server that cannot follow shows as latency.
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            requests.create_task(send(session, urls[number % len(urls)], due))
    return took


def measure(replicas: int, rates: Sequence[float], seconds: float) -> None:
    with ExitStack() as stack:
        start = stack.enter_context
        engines = [start(process(engine))[1] for _ in range(replicas)]
        direct = [pipe.recv() for pipe in engines]
        child, pipe = start(process(route, direct, MODEL))
        routed = [pipe.recv()]
        clients = [start(process(client))[1] for _ in range(_CLIENTS)]
        cpu = psutil.Process(child.pid).cpu_times
        ask(clients, routed, 100, 2)  # warms up, and the replicas become ready
        for rate in rates:
            best: dict[str, tuple[tuple[float, ...], float]] = {}
            for turn in range(4):  # in turns, the better of two
                way, urls = (("direct", direct), ("routed", routed))[turn % 2]
                before = sum(cpu()[:2])
                rested, took = time.perf_counter(), ask(clients, urls, rate, seconds)
                spent = 1000 * (sum(cpu()[:2]) - before) / len(took)
                figures = (_p(took, 50), _p(took, 99), len(took), time.perf_counter() - rested)
                best[way] = min(best.get(way, ((1e9,), 0.0)), (figures, spent))
            (d50, d99, *_), _ = best["direct"]
            (r50, r99, count, wall), spent = best["routed"]
            print(
                f"{replicas} replicas, {rate:g}/s asked, {count / wall:,.0f}/s answered: "
                f"direct p50 {d50:.2f} p99 {d99:.2f} ms, routed p50 {r50:.2f} p99 {r99:.2f} ms, "
                f"added {r50 - d50:.2f} and {r99 - d99:.2f} ms, {spent:.3f} ms of CPU a request",
                flush=True,
            )


def ask(clients: Sequence[Connection], urls: Sequence[str], rate: float, seconds: float) -> Any:
    for number, pipe in enumerate(clients):
        turned = [*urls[number % len(urls) :], *urls[: number % len(urls)]]
        pipe.send((turned, rate / len(clients), seconds))
    return [value for pipe in clients for value in pipe.recv()]


def _p(took: Sequence[float], percent: int) -> float:
    return 1000 * statistics.quantiles(took, n=100)[percent - 1]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=_numbers, default=[1, 4, 8])
    parser.add_argument("--rates", type=_numbers, default=[250, 1000, 2000])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    for replicas in options.replicas:
        measure(replicas, options.rates, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
