"""Scores through the real queue, judge and sandbox."""

import asyncio
import json
from pathlib import Path

from redis import Redis

from tests.conftest import RedisServer
from tests.reward.servers import Served, demo_completions, served


async def test_batch_has_the_statuses_of_the_demo(service: Served) -> None:
    given = demo_completions()
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
    given = next(c for c in demo_completions() if c["expected_status"] == "success")
    problem = {"dataset": given["dataset"], "problem_id": given["problem_id"]}
    texts = [f"One.\n{cheat}", f"Two.\n{cheat}", given["completion"]]
    log = {"samples": str(tmp_path), "sample_every": 1}
    async with served(redis, redis_server.url, **log) as service:
        items = [{**problem, "completion": text} for text in texts]
        _, body = await service.score(items=items, step=7)
        await service.score(items=items, step=7, purpose="validation")
        assert all("denied" not in one and "first_failed" not in one for one in body["results"])
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
    given = demo_completions()[0]
    await service.score(
        dataset=given["dataset"], problem_id=given["problem_id"], completion=given["completion"]
    )
    base = f"plumbline:{service.service.session.run.replace('/', ':')}"
    names = [f"{base}:{one}" for one in ("completions", "hashes", "verdicts", "jobs")]
    async with asyncio.timeout(20):  # an answer is given before its sample is forgotten
        while redis.exists(*names):
            await asyncio.sleep(0.02)
    [answer] = redis.keys(f"{base}:answer:*")
    assert 0 < redis.ttl(answer) <= 86_400
    assert redis.llen("rq:queue:reward") == 0
