"""The service as a process: kill -9, settings that cannot be used, the embedded stack."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from shared.ledger.queue import BATCH
from shared.schemas import Generation, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.processes import run_mains
from tests.reward.servers import DEMO, process
from tests.shared.ledgers import verdict
from tests.waiting import eventually

QUEUE = "rq:queue:reward"
COUNT = 200


def ask(url: str, body: object, timeout: float = 60) -> dict[str, object]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/v1/score", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return dict(json.load(response))


async def test_killed_and_asked_again(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """What was queued before the kill has one job; every answer arrives, and is right."""
    judged: list[str] = []

    async def parity(generation: Generation) -> Verdict:
        judged.append(generation.completion)
        await asyncio.sleep(0.02)
        odd = int(generation.completion) % 2
        return verdict(generation, FinalStatus.WRONG_ANSWER if odd else FinalStatus.SUCCESS)

    tests = {"inputs": ["1\n"], "outputs": ["1\n"]}
    items = [{"ground_truth": tests, "completion": str(number)} for number in range(COUNT)]
    environment = {"REDIS_URL": redis_server.url}
    async with Worker(redis_server.url, "w", judge=parity) as worker:
        with process("one", "services.reward", tmp_path, **environment) as (child, url):
            first = asyncio.create_task(asyncio.to_thread(ask, url, {"items": items}))
            await eventually(lambda: redis.llen(QUEUE) * BATCH >= COUNT)
            judging = asyncio.create_task(worker.serve())
            await eventually(lambda: len(judged) > COUNT // 4)
            assert child.process is not None
            child.process.kill()
            with pytest.raises((urllib.error.URLError, OSError)):
                await first
        with process("two", "services.reward", tmp_path, **environment) as (_, url):
            body = await asyncio.to_thread(ask, url, {"items": items})
            results = body["results"]
            assert [r["score"] for r in results] == [float(n % 2 == 0) for n in range(COUNT)]
            assert sorted(map(int, judged)) == list(range(COUNT))
            worker.rq.stop()
            await judging
            await eventually(lambda: not redis.keys("plumbline:reward:*:hashes"))
    assert "Traceback" not in (tmp_path / "two.log").read_text()


def test_wrong_settings_end_the_process(redis_server: RedisServer, tmp_path: Path) -> None:
    cases = (
        ("DATA", str(tmp_path / "none.parquet"), "none.parquet"),
        ("MAX_PENDING", "0", "MAX_PENDING"),
        ("CONFIG", str(tmp_path / "none.yaml"), "none.yaml"),
    )
    usual = {**os.environ, "PORT": "0", "REDIS_URL": redis_server.url}
    environments = [{**usual, f"PLUMBLINE_REWARD_{name}": value} for name, value, _ in cases]
    ended = run_mains("services.reward", environments)
    for (code, error), (_, _, said) in zip(ended, cases, strict=True):
        assert code == 2
        assert said in error and "Traceback" not in error


@pytest.mark.e2e
def test_the_embedded_stack_remembers_across_starts(tmp_path: Path) -> None:
    tests = {"inputs": ["1\n"], "outputs": ["2\n"]}
    body = {"ground_truth": tests, "completion": "```python\nprint(int(input()) + 1)\n```"}
    for cached in (False, True):
        command = [sys.executable, "-m", "services.cli", "reward", "--embedded", "--port", "0"]
        command += ["--data", str(DEMO / "data"), "--output", str(tmp_path), "sandbox.timeout=5"]
        command += ["trainer.save_freq=20"]
        log = tmp_path / "log"
        with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as plumb:
            try:
                for _ in range(600):
                    # The address is the first line of several.
                    if found := re.search(r"at (http://\S+)\n(?s:.*)logs: ", log.read_text()):
                        break
                    assert plumb.poll() is None, log.read_text()
                    with pytest.raises(subprocess.TimeoutExpired):
                        plumb.wait(0.1)
                assert found is not None
                result = ask(found[1], body)
                assert result["score"] == 1.0 and result["cached"] is cached
            finally:
                plumb.send_signal(signal.SIGTERM)
                assert plumb.wait(30) == 0
        said = log.read_text()
        assert f"data: {DEMO / 'data'}\nlogs: {tmp_path}/.plumbline/logs\n" in said
        assert "config: trainer.save_freq: no effect here; a run does not use it" in said
        assert said.endswith("\nstopped\n")
