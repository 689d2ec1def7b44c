"""Stand-in for the sandbox that answers what a case's input names, including failures."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


def _command(status: str = "Finished", return_code: int | None = 0, stdout: str = "") -> Any:
    result = {"status": status, "execution_time": 0.25, "return_code": return_code}
    return {**result, "stdout": stdout, "stderr": ""}


def _answer(status: str, run: Any = None, compiled: Any = None, **fields: Any) -> dict[str, Any]:
    document = {"status": status, "message": "", "compile_result": compiled, "run_result": run}
    return {**document, "executor_pod_name": None, "files": {}, **fields}


# What a sandbox that works may say of a program; "x" is expected.
ANSWERS: dict[str, Any] = {
    "passed": _answer("Success", _command(stdout="x\n")),
    "wrong": _answer("Success", _command(stdout="y\n")),
    "crashed": _answer("Failed", _command(return_code=1)),
    "killed": _answer("Failed", _command(return_code=-9)),
    "broken": _answer("Failed", _command("Error", None)),
    "late": _answer("Failed", _command("TimeLimitExceeded", None)),
    "uncompiled": _answer("Failed", None, _command(return_code=1)),
    "compiled late": _answer("Failed", None, _command("TimeLimitExceeded", None)),
    "compiler broken": _answer("Failed", None, _command("Error", None)),
    "compiled": _answer("Success", _command(stdout="x"), _command()),
    "compiled, crashed": _answer("Failed", _command(return_code=3), _command()),
    "nothing ran": _answer("Failed"),
    "nothing ran, yet success": _answer("Success"),
    "late, yet success": _answer("Success", _command("TimeLimitExceeded", None)),
}

# What no working sandbox says: an HTTP status, and a document or a text.
FAILURES: dict[str, tuple[int, Any]] = {
    "sandbox error": (200, _answer("SandboxError", message="Incorrect padding")),
    "unknown status": (200, _answer("Perhaps", _command(stdout="x"))),
    "server error": (500, {"detail": "x", "traceback": []}),
    "unavailable": (503, "busy"),
    "rejected": (422, {"detail": []}),
    "redirected nowhere": (307, "x"),
    "no JSON": (200, "<html>x</html>"),
    "a list": (200, [1]),
    "null": (200, None),
    "empty": (200, ""),
}


class StandIn:
    """The server's state: ``timed_out`` inputs get one 504 before their answer."""

    def __init__(self) -> None:
        self.url = ""
        self._lock = threading.Lock()
        self._timed_out: set[str] = set()

    async def run_code(self, request: web.Request) -> web.Response:
        name = (await request.json())["stdin"]
        if name.startswith("504 ") and self._first(name):
            return web.Response(status=504)
        name = name.removeprefix("504 ")
        status, body = FAILURES.get(name) or (200, ANSWERS[name])
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    def _first(self, name: str) -> bool:
        with self._lock:
            timed_out = name in self._timed_out
            self._timed_out ^= {name}
            return not timed_out


@asynccontextmanager
async def stand_in() -> AsyncIterator[str]:
    """Yield the URL of a stand-in on a free port of the loopback."""
    app = web.Application()
    app.router.add_post("/run_code", StandIn().run_code)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
