"""Each service has the rights in Redis that it needs, and no others."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fork_server import run_forked
from tests.e2e.plumb import REPOSITORY
from tests.redis_users import RedisWithUsers, redis_with_users, without_redis_settings
from tests.reward.servers import EVERYTHING, demo_completions, process
from tests.sandboxes import own_sandbox

pytestmark = pytest.mark.e2e


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisWithUsers]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_with_users(folder) as server:
        yield server


def plumb(server: RedisWithUsers, sandbox: str, *arguments: str) -> None:
    environment = without_redis_settings() | server.environment("runner")
    environment |= {"SANDBOX_URLS": sandbox, "PLUMBLINE_WAIT_SECONDS": "60"}
    code, _, errors = run_forked(arguments, REPOSITORY, environment, seconds=200)
    assert code == 0, errors


@pytest.mark.timeout(300)
def test_a_whole_run_with_a_user_per_service(server: RedisWithUsers, tmp_path: Path) -> None:
    output = tmp_path / "output"
    recorded = demo_completions()
    kept = [
        completion for completion in recorded if completion["expected_status"] == "wrong_answer"
    ][:4]
    completions = tmp_path / "completions.jsonl"
    completions.write_text("".join(json.dumps(completion) + "\n" for completion in kept))
    run = (
        *("judge", "--config", "configs/demo.yaml", "--completions", str(completions)),
        *("--data", "demo/data", "--output", str(output)),
    )
    judge, aggregator = (server.environment(name) for name in ("judge", "aggregator"))
    with (
        own_sandbox(tmp_path) as sandbox,
        process("judge", "services.judge", tmp_path, SANDBOX_URLS=sandbox, **judge),
        process("aggregator", "services.aggregator", tmp_path, **aggregator),
    ):
        plumb(server, sandbox, *run)
        plumb(server, sandbox, *run)  # resumes
        plumb(server, sandbox, *run, "--force")  # deletes the run first
    assert (output / "run.json").exists()
    assert server.refusals() == []


@pytest.mark.timeout(300)
def test_scores_and_programs_with_a_user_per_service(
    server: RedisWithUsers, tmp_path: Path
) -> None:
    data = {"PLUMBLINE_REWARD_DATA": str(REPOSITORY / "demo" / "data"), **EVERYTHING}
    reward = server.environment("reward") | data
    names = ("dataset", "problem_id", "completion")
    recorded = [
        completion
        for completion in demo_completions()
        if completion["expected_status"] != "timeout"
    ][:6]
    items = [{name: completion[name] for name in names} for completion in recorded]
    with (
        own_sandbox(tmp_path) as sandbox,
        process("reward", "services.reward", tmp_path, **reward, SANDBOX_URLS=sandbox) as (
            _,
            url,
        ),
    ):
        # Nobody judges yet, so the completions leave the queue again.
        late = post(f"{url}/v1/score", {"items": items, "deadline": 0.5})["results"]
        judge = server.environment("judge")
        with process("judge", "services.judge", tmp_path, SANDBOX_URLS=sandbox, **judge):
            for _ in range(2):  # judged, then remembered
                results = post(f"{url}/v1/score", {"items": items})["results"]
            program = post(f"{url}/v1/run", {"code": "print(1 + 2)"})
    assert not any(result["judged"] for result in late)
    assert all(result["judged"] and result["cached"] for result in results)
    assert program["stdout"] == "3\n"
    assert server.refusals() == []


def post(url: str, body: object) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=200) as response:
        return dict(json.load(response))
