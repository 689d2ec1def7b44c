"""Servers for the client: the replay server, and stand-ins for other behaviour."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from services.generator.backends.replay import build_app
from services.generator.settings import GeneratorSettings
from services.runner.client import GeneratorClient
from shared.config import GenerationConfig
from shared.run_record import OutageReport
from shared.schemas import Generation, SampleId
from shared.service.processes import free_port
from tests.generator.router.engines import cut_off, reset

SAMPLE = SampleId("d/1", "p 1", 2)
MESSAGES = [{"role": "user", "content": "Add two numbers."}]
FIELDS = {"temperature": 0.0, "max_tokens": 100}

Failure = str | Mapping[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Servers:
    """Starts servers and clients in this process, and ends them after the test."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._completions = self.recording()

    def recording(self, **fields: object) -> str:
        """Write a recorded completion of the sample, with 7 tokens unless told otherwise."""
        path = self._folder / f"completions-{len(list(self._folder.iterdir()))}.jsonl"
        line = {**asdict(SAMPLE), "completion": "print(1 + 1)", "output_tokens": 7}
        path.write_text(json.dumps(line | fields) + "\n")
        return str(path)

    async def replay(self, failure: Failure = "", *, once: bool = True, **settings: object) -> str:
        """A replay server whose next request fails, or every one; see :func:`failed`."""
        values = {"replay_completions": self._completions, **settings}
        app = build_app(GeneratorSettings.model_validate(values))
        left = [failure] if failure else []

        @web.middleware
        async def fail(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method != "POST" or not left:
                return await handler(request)
            return await failed(request, left.pop() if once else left[0])

        app.middlewares.insert(0, fail)
        return await self.serve(app)

    async def stand_in(self, chat: Handler | None = None, **pages: Handler) -> str:
        """A server with these handlers of chat completions, ``models`` and ``info``."""
        app = web.Application()
        if chat:
            app.router.add_post("/v1/chat/completions", chat)
        for name, handler in pages.items():
            app.router.add_get("/info" if name == "info" else f"/v1/{name}", handler)
        return await self.serve(app)

    async def serve(self, app: web.Application, port: int | None = None) -> str:
        server = TestServer(app, port=port)
        await server.start_server()
        self._stack.push_async_callback(server.close)
        return str(server.make_url("/")).rstrip("/")

    async def client(
        self, *urls: str, api_key: str | None = None, backoff: float = 0.001, **settings: Any
    ) -> GeneratorClient:
        defaults = {"model": "replay", "concurrency": 8, "request_timeout": 10.0}
        defaults |= {"max_attempts": 3, "retry_budget": 60.0}
        config = GenerationConfig.model_validate({**defaults, **settings})
        client = GeneratorClient(urls, config, api_key, backoff)
        return await self._stack.enter_async_context(client)


class Notes:
    """Keeps what a run reports while it waits."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.waiting = False

    def note(self, text: str) -> None:
        self.texts.append(text)

    def waits(self, outages: Sequence[OutageReport]) -> None:
        self.waiting = bool(outages)


def refused_url() -> str:
    """An address where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


async def ask(client: GeneratorClient, **fields: object) -> Generation:
    return await client.generate(SAMPLE, "run", MESSAGES, FIELDS | fields)


def answer(content: object = "text", **fields: object) -> web.Response:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return web.json_response({"choices": [choice], **fields})


# As vLLM answers.
_TOO_LONG = {
    "message": "This model's maximum context length is 4096 tokens. However, your request has 5000 "
    "input tokens. Please reduce the length of the input messages.",
    "code": "context_length_exceeded",
}


async def failed(request: web.Request, failure: Failure) -> web.StreamResponse:
    """The answer of a request that fails.

    ``failure`` is the answer's status, headers and body, a name, or an HTTP status, with
    ``:<seconds>`` for Retry-After.
    """
    if not isinstance(failure, str):
        body = failure["body"]
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=failure["status"], headers=failure["headers"], text=text)
    if failure == "hang":
        await asyncio.Event().wait()
    if failure == "reset":
        reset(request.transport)
        return web.Response()
    if failure == "truncated":
        return await cut_off(request)
    if failure == "too_long":
        return web.json_response({"error": _TOO_LONG}, status=400)
    status, _, seconds = failure.partition(":")
    headers = {"Retry-After": seconds} if seconds else {}
    error = {"message": f"injected failure: HTTP {status}"}
    return web.json_response({"error": error}, status=int(status), headers=headers)
