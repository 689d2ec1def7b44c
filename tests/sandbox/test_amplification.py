"""Large requests are refused, and a server that stands still harms no program."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.processes import service_process
from tests.sandbox.conftest import Sandbox, StartSandbox

MIB = 2**20
LIMITS = {
    "cpu": 5, "wall": 10, "compile": 10, "budget": 30, "memory": 2**30, "output": MIB,
}  # fmt: skip


def run_cases(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/run_cases", {"code": "print(1)", "inputs": [""], "limits": LIMITS, **fields}


async def test_bodies_have_a_limit(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(body_limit_bytes=MIB)

    async def pieces() -> AsyncIterator[bytes]:  # without a length told beforehand
        for _ in range(3):
            yield b" " * MIB

    for body in (b" " * (MIB + 1), pieces()):
        headers = {"Content-Type": "application/json"}
        url = f"{sandbox.url}/run_code"
        async with sandbox.session.post(url, data=body, headers=headers) as response:
            assert response.status == 413
            text = "the request is larger than 1 MiB (PLUMBLINE_SANDBOX_BODY_LIMIT_BYTES)"
            assert await response.json() == {"detail": text}


# The server as a process


@dataclass
class Server:
    sandbox: Sandbox
    process: subprocess.Popen[bytes]


@pytest.fixture
async def server(tmp_path: Path, temp_root: Path, session: ClientSession) -> AsyncIterator[Server]:
    settings = {
        "PLUMBLINE_SANDBOX_CONCURRENCY": "4",
        "PLUMBLINE_SANDBOX_TEMP_ROOT": str(temp_root),
    }
    files = tmp_path / "log", tmp_path / "port"
    with service_process("services.sandbox", *files, **settings) as (child, url):
        assert child.process is not None
        yield Server(Sandbox(session, url), child.process)


# Programs whose times would depend on a server that reads and writes their pipes.
PUMPED = {
    "prints much": ("print('x' * 4_000_000)", ""),
    "reads much": ("import sys; print(len(sys.stdin.read()))", "x" * 4_000_000),
    "prints more than it may": ("while True: print('x' * 100_000)", ""),
}


@pytest.mark.nightly
async def test_a_server_that_stands_still_changes_no_program(server: Server):
    """Stopped for longer than each limit, in which the programs end as they always do.

    The harness's call has a limit as well, which a server that reads nothing must not use up.
    """
    sandbox = server.sandbox
    await sandbox.run("print(1)")
    programs = {
        name: asyncio.create_task(
            sandbox.run(f"import time; time.sleep(2)\n{code}", stdin=stdin, run_timeout=8)
        )
        for name, (code, stdin) in PUMPED.items()
    }
    limits = LIMITS | {"budget": 1, "wall": 0.5, "compile": 0.5, "output": 2 * MIB}
    code = "import time; time.sleep(0.3); print(input() * 5)"
    path, request = run_cases(code=code, inputs=["x" * 200_000] * 4, limits=limits)
    cases = asyncio.create_task(sandbox.send("POST", path, json.dumps(request).encode()))
    await stand_still(server, len(programs) + 1, 16)
    for name, running in programs.items():
        result = (await running)["run_result"]
        assert result["status"] == "Finished", name
        assert result["return_code"] == (-9 if "more" in name else 0), name
        assert ("output limit" in result["stderr"]) == ("more" in name), name
    _, answer = await cases
    assert answer["end"] in ("done", "budget")
    assert [case["limit"] for case in answer["cases"].values()] == [None] * len(answer["cases"])


async def stand_still(server: Server, programs: int, seconds: float) -> None:
    """Stop the server while it has so many programs, and let it go on."""
    while await server.sandbox.metric("plumbline_sandbox_in_flight") < programs:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    server.process.send_signal(signal.SIGCONT)
