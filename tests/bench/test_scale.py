"""`bench-generate scale`, with stand-ins of two engines and of the router before them."""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.bench.generation import scale
from tests.bench.generation.bench import CPU, Bench
from tests.bench.generation.client import Answer
from tests.bench.generation.processes import Running
from tests.bench.generation.report import Report
from tests.bench.generation.servers import Server

pytestmark = pytest.mark.nightly

Asked = list[tuple[str, tuple[int, ...]]]
"""Name of the server and prompt of each request."""


def _server(name: str, asked: Asked, replicas: list[str]) -> TestServer:
    async def answer(request: web.Request) -> web.Response:
        document = await request.json()
        asked.append((name, tuple(document["prompt"])))
        usage = {"prompt_tokens": 1, "completion_tokens": document["max_tokens"]}
        choice = {"text": "x", "finish_reason": "length"}
        headers = {"X-Plumbline-Replica": replicas[len(asked) % len(replicas)]} if replicas else {}
        return web.json_response({"choices": [choice], "usage": usage}, headers=headers)

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    app.router.add_get("/v1/models", models)
    return TestServer(app)


@pytest.fixture
async def asked() -> Asked:
    return []


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Running]:
    """In place of the router's process, whose CPU time is read."""
    started = subprocess.Popen(["sleep", "600"])
    yield Running("router", started, tmp_path / "log")
    started.kill()
    started.wait()


@pytest.fixture
async def server(asked: Asked, process: Running) -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(_server(name, asked, [])) for name in "ab"]
        router = await stack.enter_async_context(_server("router", asked, ["vllm-0", "vllm-1"]))
        urls = [str(one.make_url("")).rstrip("/") for one in (router, *engines)]
        yield Server("ours", urls[0], "m", urls[1:], 0.0, process)


async def test_all_ways_from_one_start(
    server: Server,
    asked: Asked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    starts = []

    @contextmanager
    def serving(*_: object) -> Iterator[Server]:
        starts.append(server)
        yield server

    monkeypatch.setattr(scale, "serving", serving)
    (tmp_path / "config.json").write_text('{"vocab_size": 1000}')
    size = replace(CPU, prompts=4, new_tokens=8)
    out = tmp_path / "out.jsonl"
    bench = Bench(str(tmp_path), size, True, tmp_path, Report("scale", out, {}), [])
    await asyncio.to_thread(scale.measure, bench, 2, 1)

    assert len(starts) == 1
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.read_text().splitlines()]
    passes = [line for line in lines if line["kind"] == "pass"]
    assert [one["way"] for one in passes] == ["one", "direct", "router"] * 2
    assert [sum(one["answers"].values()) for one in passes] == [4, 8, 8] * 2
    assert set(passes[-1]["answers"]) == {"vllm-0", "vllm-1"}
    assert sorted(passes[-2]["answers"].values()) == [4, 4]
    assert all(one["failed"] == 0 and one["tokens"] for one in passes)
    # Another replica is the one each time, and no prompt is asked twice.
    assert Counter(name for name, _ in asked) == {"a": 12, "b": 12, "router": 16}
    assert len({prompt for _, prompt in asked}) == len(asked)
    summaries = {line["way"]: line for line in lines if line["kind"] == "summary"}
    assert summaries["one"]["over_one"] == summaries["direct"]["over_direct"] == 1
    assert "2 replicas, medians of the passes" in capsys.readouterr().out


def test_a_pass_waits_for_its_slowest_replica() -> None:
    times = {"a": (1.0, 6.0), "b": (2.0, 8.0), "c": (10.0,)}
    answers = [
        Answer(200, 1.0, ended=ended, replica=name)
        for name, ends in times.items()
        for ended in ends
    ]
    ends = scale.Ends.of(answers)
    assert ends.seconds == {"a": 6.0, "b": 8.0, "c": 10.0}
    assert ends.answers == {"a": 2, "b": 2, "c": 1}
    assert ends.idle == pytest.approx(0.2)


def test_the_machine_is_measured_in_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, told = tmp_path / "nvidia-smi", tmp_path / "told"
    # Two GPUs, one of which does not tell its power; the last line is cut off.
    tool.write_text(
        "#!/bin/sh\necho '1980, 650.5'\necho '1500, [N/A]'\nprintf 19\n"
        f"touch {told}\nexec sleep 600\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    burner = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        with scale.measured(burner.pid) as usage:
            subprocess.run(["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            while not told.exists():
                subprocess.run(["sleep", "0.01"])
    finally:
        burner.kill()
        burner.wait()
    assert usage.router_cpu > 0
    assert usage.clients_cpu > 0
    assert usage.busy > 0
    assert (usage.clocks, usage.power) == ([1980.0], [650.5])
