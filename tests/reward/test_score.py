"""Scores and programs through the real queue, judge and sandbox."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from plumbline_reward import Client, RefusedError, compute_score
from redis import Redis

from shared.config import load_config
from shared.datasets import read_datasets
from shared.reference import reference_of
from tests.conftest import RedisServer
from tests.reward.servers import DEMO, Served, demo_completions, served
from tests.waiting import eventually


async def test_batch_has_the_statuses_of_the_demo(service: Served) -> None:
    kinds = {(c["dataset"], c["expected_status"]): c for c in demo_completions()}
    given = list(kinds.values())
    items = [
        {"dataset": c["dataset"], "problem_id": c["problem_id"], "completion": c["completion"]}
        for c in given
    ]
    status, body = await service.score(items=items)
    assert status == 200
    assert [r["status"] for r in body["results"]] == [c["expected_status"] for c in given]
    assert all(r["judged"] and r["score"] == r["pass_ratio"] for r in body["results"])

    _, again = await service.score(items=items, score="accepted")
    assert all(r["cached"] for r in again["results"])
    assert [r["score"] for r in again["results"]] == [float(r["accepted"]) for r in body["results"]]


async def test_signs_of_reward_hacking(
    judge: None, redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The judge's path, from the program to the log: what the sandbox refused, and copies."""
    cheat = "```python\nopen('/etc/shadow').read()\n```"
    completion = next(c for c in demo_completions() if c["expected_status"] == "success")
    problem = {"dataset": completion["dataset"], "problem_id": completion["problem_id"]}
    texts = [f"One.\n{cheat}", f"Two.\n{cheat}", completion["completion"]]
    log = {"samples": str(tmp_path), "sample_every": 1}
    async with served(redis, redis_server.url, **log) as service:
        items = [{**problem, "completion": text} for text in texts]
        _, body = await service.score(items=items, step=7)
        await service.score(items=items, step=7, purpose="validation")
        assert all(
            "denied" not in result and "first_failed" not in result for result in body["results"]
        )
    [file] = tmp_path.iterdir()
    written = [json.loads(line) for line in file.read_text().splitlines()]
    lines, validated = written[:3], written[3:]
    assert ["copied" in line["signs"] for line in validated] == [False] * 3
    cheats = [line for line in lines if "shadow" in line["completion"]]
    assert [line["signs"]["guard"] for line in cheats] == [True, True]
    assert sorted(line["signs"]["copied"] for line in cheats) == [False, True]
    [honest] = [line for line in lines if line not in cheats]
    assert not any(honest["signs"].values()) and honest["step"] == 7


async def test_nothing_is_left_in_redis_but_answers(service: Served, redis: Redis) -> None:
    completion = demo_completions()[0]
    await service.score(
        dataset=completion["dataset"],
        problem_id=completion["problem_id"],
        completion=completion["completion"],
    )
    base = f"plumbline:{service.service.session.run.replace('/', ':')}"
    names = [f"{base}:{one}" for one in ("completions", "hashes", "verdicts", "jobs")]
    # An answer is given before its sample is forgotten.
    await eventually(lambda: not redis.exists(*names))
    [answer] = redis.keys(f"{base}:answer:*")
    assert 0 < redis.ttl(answer) <= 86_400
    assert redis.llen("rq:queue:reward") == 0


async def test_canaries_are_sent_and_judged(
    judge: None, redis: Redis, redis_server: RedisServer
) -> None:
    completion = demo_completions()[0]
    named = {name: completion[name] for name in ("dataset", "problem_id", "completion")}
    config = load_config(None, ["sandbox.timeout=1"])
    async with served(redis, redis_server.url, config=config) as service:
        assert (await service.score(**named))[1]["status"] == completion["expected_status"]
        await eventually(lambda: redis.keys("plumbline:reward:*:canaries"))
        [reports] = redis.keys("plumbline:reward:*:canaries")
        await eventually(lambda: all(report.startswith(b"{") for report in redis.hvals(reports)))
        for stored in redis.hvals(reports):
            report = json.loads(stored)
            assert report["sent"] > 0 and not report["wrong"]
        assert (await facts(service))["distrust"] == []
        report["wrong"] = [{"canary": "sum", "text": "accepted a wrong answer"}]
        redis.hset(reports, "another", json.dumps(report))
        [found] = (await facts(service))["distrust"]
        assert "accepted a wrong answer" in found


async def facts(service: Served) -> dict[str, Any]:
    async with service.client.get(f"{service.url}/v1/info") as response:
        return dict(await response.json())


# Through the client


async def test_refusals_have_the_services_words_and_hit_nobody_else(service: Served) -> None:
    problem = read_datasets([str(DEMO / "data")])[0]
    reference = reference_of(problem).text
    wrong = {
        "409": reference[:-16] + "0" * 16,
        "404": "plumbline:nowhere/1#0123456789abcdef",
        "422": "neither a reference nor JSON",
    }
    calls = [
        compute_score(problem.dataset, "```python\nprint(1)\n```", truth, {}, url=service.url)
        for truth in (reference, *wrong.values(), reference)
    ]
    first, *refused, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert first["score"] == last["score"]
    for status, error in zip(wrong, refused, strict=True):
        assert isinstance(error, RefusedError)
        assert str(error.status) == status
        assert "items[" not in str(error)


async def test_programs_run_in_the_sandbox(service: Served) -> None:
    client = Client(service.url, timeout=60)
    run = client.run_async
    assert (await run("print(int(input()) * 6)", stdin="7\n")).stdout == "42\n"
    failed = await run("print('before')\nraise SystemExit(3)")
    assert (failed.status, failed.exit_code, failed.stdout) == ("error", 3, "before\n")
    assert (await run("while True: pass", timeout=1)).status == "timeout"
    long = await run("print('x' * 200_000)")
    assert long.truncated
    assert 0 < len(long.stdout) < 200_000
    with pytest.raises(RefusedError):
        await run("1", language="cobol")
