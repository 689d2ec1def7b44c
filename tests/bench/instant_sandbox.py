"""A sandbox in a process of its own that runs nothing: every case printed ``3`` at once."""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from shared.harness.wire import CALL_RESULT, RUN_CASES_VERSION, CallResult, CaseRun

OUTPUT = "3\n"


@contextmanager
def instant_sandbox(answer_after: float = 0.0, cases: int = 1) -> Iterator[str]:
    """Yield the URL of a sandbox that answers calls of ``cases`` cases after so many seconds."""
    command = [sys.executable, "-m", "tests.bench.instant_sandbox"]
    command += [f"--answer-after={answer_after}", f"--cases={cases}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def _serve(answer_after: float, cases: int) -> None:
    run = CaseRun(0, 0.001, 0.001, 0.001, 1_000_000, None, OUTPUT.encode(), "")
    ran = CallResult("ok", cases=dict.fromkeys(range(cases), run), end="done", seconds=0.001)
    answer = CALL_RESULT.dump_json(ran)

    async def offer(_request: web.Request) -> web.Response:
        return web.Response(headers={"Plumbline-Run-Cases": RUN_CASES_VERSION})

    async def run_cases(request: web.Request) -> web.Response:
        await request.read()
        if answer_after:
            await asyncio.sleep(answer_after)
        return web.json_response(body=answer)

    async def ping(_request: web.Request) -> web.Response:
        return web.json_response("pong")

    app = web.Application()
    app.router.add_head("/run_cases", offer)
    app.router.add_post("/run_cases", run_cases)
    app.router.add_get("/v1/ping", ping)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__)
    _parser.add_argument("--answer-after", type=float, default=0.0)
    _parser.add_argument("--cases", type=int, default=1)
    _options = _parser.parse_args()
    asyncio.run(_serve(_options.answer_after, _options.cases))
