"""Each service has the rights in Redis that it needs, and no others."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def service(module: str, environment: dict[str, str]) -> Iterator[None]:
    settings = without_redis_settings() | {"PORT": "0"} | environment
    process = subprocess.Popen([sys.executable, "-m", module], cwd=REPOSITORY, env=settings)
    try:
        yield
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def plumb(server: RedisWithUsers, sandbox: str, *arguments: str) -> str:
    environment = without_redis_settings() | server.environment("runner")
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=REPOSITORY,
        env=environment | {"SANDBOX_URLS": sandbox, "PLUMBLINE_WAIT_SECONDS": "60"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_a_whole_run_with_a_user_per_service(server: RedisWithUsers, tmp_path: Path) -> None:
    output = tmp_path / "output"
    recorded = demo_completions()
    kept = [one for one in recorded if one["expected_status"] == "wrong_answer"][:4]
    completions = tmp_path / "completions.jsonl"
    completions.write_text("".join(json.dumps(one) + "\n" for one in kept))
    run = (
        *("judge", "--config", "configs/demo.yaml", "--completions", str(completions)),
        *("--data", "demo/data", "--output", str(output)),
    )
    index = {"PLUMBLINE_INDEX_DIR": str(tmp_path / "index")}
    with (
        own_sandbox(tmp_path) as sandbox,
        service("services.judge", server.environment("judge") | {"SANDBOX_URLS": sandbox}),
        service("services.aggregator", server.environment("aggregator") | index),
    ):
        plumb(server, sandbox, *run)
        plumb(server, sandbox, *run)  # resumes
        plumb(server, sandbox, *run, "--force")  # deletes the run first
    assert (output / "run.json").exists()
    assert server.refusals() == []


@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_scores_for_a_trainer_with_a_user_per_service(
    server: RedisWithUsers, tmp_path: Path
) -> None:
    data = {"PLUMBLINE_REWARD_DATA": str(REPOSITORY / "demo" / "data"), **EVERYTHING}
    names = ("dataset", "problem_id", "completion")
    items = [{name: one[name] for name in names} for one in demo_completions()]
    with (
        own_sandbox(tmp_path) as sandbox,
        service("services.judge", server.environment("judge") | {"SANDBOX_URLS": sandbox}),
        process("reward", "services.reward", tmp_path, **server.environment("reward"), **data) as (
            _,
            url,
        ),
    ):
        for _ in range(2):  # judged, then remembered
            request = urllib.request.Request(
                f"{url}/v1/score",
                json.dumps({"items": items}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=400) as response:
                results = json.load(response)["results"]
        program = _run_program(url)
    assert all(result["judged"] and result["cached"] for result in results)
    assert program["stdout"] == "3\n"
    assert server.refusals() == []


def _run_program(url: str) -> dict[str, object]:
    body = json.dumps({"code": "print(1 + 2)"}).encode()
    request = urllib.request.Request(f"{url}/v1/run", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return dict(json.load(response))
