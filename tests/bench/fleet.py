"""`make bench-fleet`: whether judges that docs/sizing.md asks for keep up with replicas on GPUs.

    python -m tests.bench.fleet --model DIR --replicas 4 --data SET.parquet --completions FILE

Our generator makes answers of exactly ``--new-tokens`` tokens. Random weights write no programs, so
a proxy puts recorded completions into the answers; ``plumb run --embedded`` has them judged for
real. Printed is how many answers waited for a verdict, over time.
"""

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np
import uvloop
from aiohttp import web

from shared.completions import read_completions
from shared.finished_run import open_run
from shared.schemas import SampleId
from tests.bench.generation.routers import listen, process
from tests.bench.generation.servers import CPU, GPU, OURS, make_config, serving, supervised

_SESSION = web.AppKey("session", aiohttp.ClientSession)
_PATH = "/v1/chat/completions"
_PLACES = 16  # completions that a judge process judges at once
_INTERVAL = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of the model")
    add("--replicas", type=int, default=4)
    add("--data", required=True, help="parquet file of the problems")
    add("--completions", type=Path, required=True, help="JSON lines, one for each problem")
    add("--n", type=int, default=400, help="answers per problem")
    add("--new-tokens", type=int, default=512)
    add("--core-seconds", type=float, default=0.0205, help="s of docs/sizing.md")
    add("--judge-seconds", type=float, default=0.0031, help="j of docs/sizing.md")
    add("--tokens-per-second", type=float, default=46_179, help="T of docs/sizing.md")
    add("--limit-seconds", type=float, default=590.0)
    add("--cpu-engine", action="store_true")
    add("--python", default=sys.executable, help="interpreter that has plumb's packages")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="fleet-") as name, supervised(options.limit_seconds):
        size = replace(CPU if options.cpu_engine else GPU, new_tokens=options.new_tokens)
        size = replace(size, prompt_tokens=1000)  # room for every problem
        config = make_config(options.model, size, options.replicas, cpu_engine=options.cpu_engine)
        with serving(OURS, config, Path(name) / "generator") as generator:
            run(options, generator.urls[0], generator.model, Path(name))
    return 0


def run(options: argparse.Namespace, generator: str, model: str, folder: Path) -> None:
    answers = {
        answer.problem_id: answer.completion
        for answer in read_completions(str(options.completions))
    }
    rate = options.replicas * options.tokens_per_second / options.new_tokens
    cores = math.ceil(rate * options.core_seconds)
    judges = math.ceil(1.25 * max(cores / _PLACES, rate * options.judge_seconds))
    print(f"for {rate:.0f} answers/s: {cores} cores of sandbox, {judges} judges", flush=True)
    fleet = {"PLUMBLINE_SANDBOX_CONCURRENCY": str(cores)}
    fleet |= {"PLUMBLINE_JUDGE_CONCURRENCY": str(_PLACES)}
    in_flight = 512 * options.replicas
    command = [options.python, "-m", "services.cli", "run", "--embedded"]
    command += ["--model", model, "--data", options.data, "--n", str(options.n)]
    command += ["--temperature", "1", "--max-tokens", str(options.new_tokens)]
    command += ["--max-concurrent-requests", str(in_flight), "--output", str(folder / "run")]
    command += [f"judge.workers={judges}", "sandbox.memory_limit_mb=1024"]
    began = time.time()
    arguments = generator, answers, options.new_tokens
    with (folder / "run.log").open("wb") as log, process(serve_recorded, *arguments) as (_, pipe):
        command += ["--base-url", f"{pipe.recv()}/v1"]
        try:
            code = subprocess.run(command, env={**os.environ, **fleet}, stdout=log, stderr=log)
            print(f"plumb run: exit code {code.returncode} after {time.time() - began:.0f} s")
        finally:
            print((folder / "run.log").read_text()[-5000:])
    show(folder / "run")


def show(run: Path) -> None:
    """Answers, verdicts and what waits between the two, from the times of the samples."""
    rows = [
        (generation.finished_at, verdict.judged_at, generation.output_tokens or 0)
        for verdict, generation in open_run(str(run)).judged_samples()
        if generation is not None and generation.finished_at and verdict.judged_at
    ]
    answered, judged, tokens = np.array(rows, dtype=float).T
    delays = np.percentile(judged - answered, [50, 99])
    answered.sort()
    judged.sort()
    print("second | answers/s | tokens/s | verdicts/s | waiting for a verdict")
    last = 0, 0
    for end in np.arange(answered[0] + _INTERVAL, judged[-1] + _INTERVAL, _INTERVAL):
        now = int(np.searchsorted(answered, end)), int(np.searchsorted(judged, end))
        rates = [(now[part] - last[part]) / _INTERVAL for part in (0, 1)]
        shown = f"{rates[0]:9.1f} | {rates[0] * tokens.mean():8.0f} | {rates[1]:10.1f}"
        print(f"{end - answered[0]:6.0f} | {shown} | {now[0] - now[1]}")
        last = now
    print(f"from an answer to its verdict: p50 {delays[0]:.2f} s, p99 {delays[1]:.2f} s")


def serve_recorded(
    pipe: Connection, generator: str, answers: Mapping[str, str], new_tokens: int
) -> None:
    async def opened(app: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            app[_SESSION] = session
            yield

    async def models(request: web.Request) -> web.Response:
        async with request.app[_SESSION].get(f"{generator}/v1/models") as response:
            return web.Response(body=await response.read(), content_type="application/json")

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() | {"ignore_eos": True, "max_tokens": new_tokens}
        async with request.app[_SESSION].post(f"{generator}{_PATH}", json=body) as response:
            document = await response.json()
            if response.status == 200:
                sample = "/".join(request.headers["X-Request-Id"].rsplit("/", 3)[1:])
                text = answers[SampleId.parse(sample).problem_id]
                document["choices"][0]["message"]["content"] = text
                document["choices"][0]["finish_reason"] = "stop"
            return web.json_response(document, status=response.status)

    app = web.Application()
    app.cleanup_ctx.append(opened)
    app.add_routes([web.get("/v1/models", models), web.post(_PATH, answer)])

    uvloop.run(listen(app, pipe))


if __name__ == "__main__":
    sys.exit(main())
