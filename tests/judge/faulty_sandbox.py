"""A proxy in front of a real sandbox that injects one fault into every call."""

import base64
import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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

    @property
    def many(self) -> bool:
        """Whether it runs many cases."""
        return self.path == "/run_cases"


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


# Faults of results


@dataclass
class Result:
    """The result of a program in either API."""

    stdout: bytes
    stderr: str
    exit_code: int
    limit: str | None = None
    cpu: float = 0.0


def of_results(change: Callable[[Result], None]) -> Fault:
    """A fault that changes the result of every program."""

    async def fault(call: Call, send: Send) -> Body:
        answer = await send(call.body)
        if call.many:
            for case in answer["cases"].values():
                _change_case(case, change)
        return answer

    return fault


def _change_case(case: Body, change: Callable[[Result], None]) -> None:
    stdout = base64.b64decode(case["stdout"])
    result = Result(stdout, case["stderr"], case["exit_code"], case["limit"], case["cpu"])
    change(result)
    case["stdout"] = base64.b64encode(result.stdout).decode()
    case["stderr"], case["exit_code"], case["limit"] = result.stderr, result.exit_code, result.limit
    case["user"] *= result.cpu / case["cpu"] if case["cpu"] else 1
    case["cpu"] = result.cpu


def cut_output(most: int) -> Fault:
    def change(result: Result) -> None:
        result.stdout = result.stdout[:most]

    return of_results(change)


def normalize_newlines(result: Result) -> None:
    result.stdout = result.stdout.replace(b"\r\n", b"\n")


def merge_streams(result: Result) -> None:
    result.stdout, result.stderr = result.stderr.encode() + result.stdout, ""


def lose_exit_code(result: Result) -> None:
    result.exit_code = min(0, result.exit_code)


def lose_signals(result: Result) -> None:
    result.exit_code = 0 if result.exit_code < 0 and not result.limit else result.exit_code


def replace_invalid(result: Result) -> None:
    result.stdout = result.stdout.decode("ascii", "replace").encode()


def count_twice(result: Result) -> None:
    result.cpu *= 2


# Faults of limits


def of_limits(cases: Callable[[Body], Body], single: Callable[[Body], Body] | None = None) -> Fault:
    """A fault that changes the limits of every call: those of cases, and those of one program."""

    async def fault(call: Call, send: Send) -> Body:
        body = copy.deepcopy(call.body)
        if call.many:
            body["limits"] |= cases(body["limits"])
        elif single:
            body |= single(body)
        return await send(body)

    return fault


NO_MEMORY_LIMIT = of_limits(lambda _: {"memory": 1 << 44}, lambda _: {"memory_limit_MB": -1})
NO_TIME_LIMIT = of_limits(lambda _: {"cpu": 500, "wall": 500}, lambda _: {"run_timeout": 60})
NO_OUTPUT_LIMIT = of_limits(lambda _: {"output": 1 << 30})
HALF_MEMORY = of_limits(
    lambda limits: {"memory": limits["memory"] // 2},
    lambda body: {"memory_limit_MB": body["memory_limit_MB"] // 2},
)
HALF_TIME = of_limits(lambda limits: {"cpu": limits["cpu"] / 2})
HALF_OUTPUT = of_limits(lambda limits: {"output": limits["output"] // 2})
WALL_TIME = of_limits(lambda limits: {"wall": limits["cpu"]})


async def slow_clock(call: Call, send: Send) -> Body:
    """CPU time is charged twice, and programs are stopped by it."""
    body = copy.deepcopy(call.body)
    if call.many:
        body["limits"]["cpu"] /= 2
    return await of_results(count_twice)(Call(call.path, body, call.memory), send)


# Faults of programs


def of_code(change: Callable[[str], str]) -> Fault:
    async def fault(call: Call, send: Send) -> Body:
        if call.body.get("language") != "python":
            return await send(call.body)
        return await send({**call.body, "code": change(call.body["code"])})

    return fault


def after(prefix: str) -> Fault:
    """A fault that runs a prefix before each program."""
    return of_code(lambda code: f"{prefix}\n{code}")


NO_FORK = after("import os\ndef _no(*_):\n    raise OSError('forbidden')\nos.fork = _no")
OLD_PYTHON = of_code(lambda code: re.sub(r"\bmatch (\w+):", r"match \1 then:", code))


# Faults between calls


async def cut_input(call: Call, send: Send, most: int = 65536) -> Body:
    body = copy.deepcopy(call.body)
    if call.many:
        body["inputs"] = [text.encode()[:most].decode("utf-8", "ignore") for text in body["inputs"]]
    elif body.get("stdin"):
        body["stdin"] = body["stdin"][:most]
    return await send(body)


async def remember_by_code(call: Call, send: Send) -> Body:
    """Answers are remembered by the program alone."""
    key = call.body["code"]
    if key not in call.memory:
        call.memory[key] = await send(call.body)
    return dict(call.memory[key])


async def remember_by_input(call: Call, send: Send) -> Body:
    """Answers are remembered by the input alone."""
    key = json.dumps(call.body.get("inputs") or call.body.get("stdin"))
    if key not in call.memory:
        call.memory[key] = await send(call.body)
    return dict(call.memory[key])


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
