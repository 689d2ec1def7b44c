"""Run and scores over sentinels, with the real services, while the master is killed."""

import json
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from shared.ledger import Ledger, connect, list_runs
from tests.e2e.plumb import REPOSITORY, wait_for
from tests.redis_users import without_redis_settings
from tests.reward.servers import EVERYTHING, demo_completions, process
from tests.sandboxes import own_sandbox
from tests.sentinels import Sentinels, sentinels

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def score(url: str, items: list[dict[str, str]]) -> list[dict[str, object]]:
    request = urllib.request.Request(
        f"{url}/v1/score",
        json.dumps({"items": items}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return list(json.load(response)["results"])


@pytest.mark.nightly
def test_every_service_survives_the_loss_of_the_master(tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = (
        *(sys.executable, "-m", "services.cli", "judge", "--config", "configs/demo.yaml"),
        *("--completions", "demo/completions.jsonl", "--data", "demo/data"),
        *("--output", str(output), "data.limit=2", "data.lock=null"),
    )
    data = {"PLUMBLINE_REWARD_DATA": str(REPOSITORY / "demo" / "data"), **EVERYTHING}
    names = ("dataset", "problem_id", "completion")
    items = [{name: completion[name] for name in names} for completion in demo_completions()[:6]]
    with sentinels(tmp_path / "servers") as servers, own_sandbox(tmp_path) as sandbox:
        redis = {"REDIS_URL": servers.url}
        environment = without_redis_settings() | redis
        with (
            process("judge", "services.judge", tmp_path, **redis, SANDBOX_URLS=sandbox),
            process("aggregator", "services.aggregator", tmp_path, **redis),
            process("reward", "services.reward", tmp_path, **redis, **data) as (_, reward),
            subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment | {"SANDBOX_URLS": sandbox, "PLUMBLINE_WAIT_SECONDS": "60"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as run,
        ):
            scored: list[dict[str, object]] = []
            asking = threading.Thread(target=lambda: scored.extend(score(reward, items)))
            wait_for(lambda: judged(servers) > 0, "the first verdict")
            asking.start()
            servers.fail_over()
            _, errors = run.communicate(timeout=200)
            asking.join(120)
            assert run.returncode == 0, errors
            assert len(scored) == len(items)
            assert all(result["judged"] for result in scored)
            assert all(result["judged"] for result in score(reward, items))
    record = json.loads((output / "run.json").read_text())
    assert (record["state"], record["samples_unjudged"]) == ("complete", 0)


def judged(servers: Sentinels) -> int:
    with connect(servers.url) as client:
        return sum(Ledger(client, run).judged_count() for run in list_runs(client))
