"""A proxy in front of a real sandbox that injects one fault into every call."""

import asyncio
import base64
import copy
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

# Bodies of requests and responses, whose shapes are those of the sandbox's API.
Body = dict[str, Any]
Send = Callable[[Body], Awaitable[Body]]
Fault = Callable[["Call", Send], Awaitable[Body]]


@dataclass
class Call:
    """A call on its way: its path, and what the proxy remembers of others."""

    path: str
    body: Body
    memory: dict[str, Any]


@asynccontextmanager
async def faulty(
    url: str,
    fault: Fault,
    *,
    cases: bool = True,
    port: int = 0,
    answers: dict[str, Body] | None = None,
) -> AsyncIterator[str]:
    """Serve the sandbox at ``url`` with a fault, by default on a free port; yield the URL.

    Args:
        url: The real sandbox.
        fault: The fault.
        cases: Whether the proxy offers ``/run_cases``.
        port: The proxy's port.
        answers: Real answers by path and body. The proxy adds to them, and sends no equal call
            again.
    """
    memory: dict[str, Any] = {}
    async with aiohttp.ClientSession() as session:

        async def serve(request: web.Request) -> web.StreamResponse:
            if request.path == "/run_cases" and not cases:
                return web.Response(status=404)
            if request.method != "POST":
                async with session.request(request.method, f"{url}{request.path}") as answer:
                    headers = {n: v for n, v in answer.headers.items() if n.startswith("Plumb")}
                    return web.Response(body=await answer.read(), headers=headers)

            async def send(body: Body) -> Body:
                key = f"{request.path} {json.dumps(body, sort_keys=True)}"
                if answers is not None and key in answers:
                    return copy.deepcopy(answers[key])
                answer = await ask(body)
                if answers is not None:
                    answers[key] = copy.deepcopy(answer)
                return answer

            async def ask(body: Body) -> Body:
                async with session.post(f"{url}{request.path}", json=body) as answer:
                    answer.raise_for_status()
                    return dict(await answer.json())

            body = json.loads(await request.read())
            return web.json_response(await fault(Call(request.path, body, memory), send))

        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()


@contextmanager
def faulty_in_thread(url: str, fault: Fault) -> Iterator[str]:
    """``faulty`` for a test without an event loop; yields the proxy's URL."""
    started, ended, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    urls: list[str] = []

    async def serve() -> None:
        async with faulty(url, fault) as proxy:
            urls.append(proxy)
            started.set()
            await ended.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(30)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


# Faults of results


def of_results(change: Callable[[Body], None]) -> Fault:
    """A fault that changes the result of every case."""

    async def fault(call: Call, send: Send) -> Body:
        answer = await send(call.body)
        for case in answer.get("cases", {}).values():
            change(case)
        return answer

    return fault


def of_outputs(change: Callable[[bytes, Body], bytes]) -> Fault:
    """A fault that changes the output of every case."""

    def change_output(case: Body) -> None:
        stdout = change(base64.b64decode(case["stdout"]), case)
        case["stdout"] = base64.b64encode(stdout).decode()

    return of_results(change_output)


def cut_output(most: int) -> Fault:
    return of_outputs(lambda stdout, _: stdout[:most])


NORMALIZED_NEWLINES = of_outputs(lambda stdout, _: stdout.replace(b"\r\n", b"\n"))
REPLACED_CHARACTERS = of_outputs(lambda stdout, _: stdout.decode("ascii", "replace").encode())
MERGED_STREAMS = of_outputs(lambda stdout, case: case["stderr"].encode() + stdout)
LOST_EXIT_CODES = of_results(lambda case: case.update(exit_code=min(0, case["exit_code"])))


@of_results
def lost_signals(case: Body) -> None:
    if case["exit_code"] < 0 and not case["limit"]:
        case["exit_code"] = 0


# Faults of limits


def of_limits(change: Callable[[Body], Body]) -> Fault:
    """A fault that changes the limits of the cases of every call."""

    async def fault(call: Call, send: Send) -> Body:
        if limits := call.body.get("limits"):
            return await send({**call.body, "limits": {**limits, **change(limits)}})
        return await send(call.body)

    return fault


NO_MEMORY_LIMIT = of_limits(lambda _: {"memory": 1 << 44})
NO_TIME_LIMIT = of_limits(lambda _: {"cpu": 500, "wall": 500})
NO_OUTPUT_LIMIT = of_limits(lambda _: {"output": 1 << 30})
HALF_MEMORY = of_limits(lambda limits: {"memory": limits["memory"] // 2})
HALF_TIME = of_limits(lambda limits: {"cpu": limits["cpu"] / 2})
HALF_OUTPUT = of_limits(lambda limits: {"output": limits["output"] // 2})
WALL_TIME = of_limits(lambda limits: {"wall": limits["cpu"]})


async def slow_clock(call: Call, send: Send) -> Body:
    """CPU time is charged twice, and programs are stopped by it."""
    answer = await HALF_TIME(call, send)
    for case in answer["cases"].values():
        case["cpu"], case["user"] = 2 * case["cpu"], 2 * case["user"]
    return answer


# Faults of programs


def of_code(change: Callable[[str], str]) -> Fault:
    async def fault(call: Call, send: Send) -> Body:
        if call.body.get("language") != "python":
            return await send(call.body)
        return await send({**call.body, "code": change(call.body["code"])})

    return fault


_NO_FORK = "import os\ndef _no(*_):\n    raise OSError('forbidden')\nos.fork = _no\n"
NO_FORK = of_code(lambda code: f"{_NO_FORK}{code}")
OLD_PYTHON = of_code(lambda code: re.sub(r"\bmatch (\w+):", r"match \1 then:", code))


# Faults between calls


async def cut_input(call: Call, send: Send, most: int = 65536) -> Body:
    inputs = [text.encode()[:most].decode("utf-8", "ignore") for text in call.body["inputs"]]
    return await send({**call.body, "inputs": inputs})


def remember_by(field: str) -> Fault:
    """Answers are remembered by one field of the call alone."""

    async def fault(call: Call, send: Send) -> Body:
        key = json.dumps(call.body[field])
        if key not in call.memory:
            call.memory[key] = await send(call.body)
        return dict(call.memory[key])

    return fault


async def shared_folder(call: Call, send: Send) -> Body:
    """Files in /tmp outlive a program: those of the same program are there when it runs again."""
    key = f"seen {call.body['code']}"
    names = re.findall(r"f\"([\w-]+)-\{len", call.body["code"])
    if key not in call.memory or not names:
        call.memory[key] = True
        return await send(call.body)
    lines = [f"open('/tmp/{names[0]}-{n}', 'w').close()" for n in range(6)]
    return await send({**call.body, "code": "\n".join([*lines, call.body["code"]])})


async def healthy(call: Call, send: Send) -> Body:
    return await send(call.body)
