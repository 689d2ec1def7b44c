"""Large requests are refused, and a server that stands still harms no program."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.processes import service_process
from tests.sandbox.conftest import Sandbox, StartSandbox
from tests.sandbox.test_channels import run_cases

MIB = 2**20


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


# Programs whose times would depend on a server that reads and writes their pipes.
PUMPED = {
    "prints much": ("print('x' * 4_000_000)", ""),
    "reads much": ("import sys; print(len(sys.stdin.read()))", "x" * 4_000_000),
    "prints more than it may": ("while True: print('x' * 100_000)", ""),
}


@pytest.mark.nightly
async def test_a_server_that_stands_still_changes_no_program(
    tmp_path: Path, temp_root: Path, session: ClientSession
):
    """Stopped for longer than each limit, in which the programs end as they always do.

    The harness's call has a limit as well, which a server that reads nothing must not use up.
    """
    settings = {"CONCURRENCY": "4", "TEMP_ROOT": str(temp_root)}
    variables = {f"PLUMBLINE_SANDBOX_{name}": value for name, value in settings.items()}
    files = tmp_path / "log", tmp_path / "port"
    with service_process("services.sandbox", *files, **variables) as (server, url):
        assert server.process is not None
        sandbox = Sandbox(session, url)
        await sandbox.run("print(1)")
        programs = {
            name: asyncio.create_task(
                sandbox.run(f"import time; time.sleep(2)\n{code}", stdin=stdin, run_timeout=8)
            )
            for name, (code, stdin) in PUMPED.items()
        }
        limits = {"budget": 1, "wall": 0.5, "compile": 0.5, "output": 2 * MIB}
        code = "import time; time.sleep(0.3); print(input() * 5)"
        cases = asyncio.create_task(run_cases(sandbox, code, ["x" * 200_000] * 4, **limits))
        while await sandbox.metric("plumbline_sandbox_in_flight") < len(programs) + 1:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(16)
        server.process.send_signal(signal.SIGCONT)
        for name, running in programs.items():
            result = (await running)["run_result"]
            assert result["status"] == "Finished", name
            assert result["return_code"] == (-9 if "more" in name else 0), name
            assert ("output limit" in result["stderr"]) == ("more" in name), name
        _, answer = await cases
    assert answer["end"] in ("done", "budget")
    assert [case["limit"] for case in answer["cases"].values()] == [None] * len(answer["cases"])
