"""Stand-in for the sandbox that answers what a case's input names."""

from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


def _command(status: str = "Finished", return_code: int | None = 0, stdout: str = "") -> Any:
    result = {"status": status, "execution_time": 0.25, "return_code": return_code}
    return {**result, "stdout": stdout, "stderr": ""}


def _answer(status: str, run: Any = None, compiled: Any = None) -> dict[str, Any]:
    document = {"status": status, "message": "", "compile_result": compiled, "run_result": run}
    return {**document, "executor_pod_name": None, "files": {}}


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


async def _run_code(request: web.Request) -> web.Response:
    return web.json_response(ANSWERS[(await request.json())["stdin"]])


def stand_in() -> TestServer:
    """A stand-in on a free port of the loopback."""
    app = web.Application()
    app.router.add_post("/run_code", _run_code)
    return TestServer(app)
