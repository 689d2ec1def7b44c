"""The profile ``reward``: the demo's answers scored by a container with its user and token."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shared.schemas import sha256
from tests.compose.conftest import Step
from tests.compose.stack import ROOT, Stack, docker, health, until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
Item = dict[str, Any]


class Reward:
    """The service as a trainer on the host reaches it."""

    def __init__(self, stack: Stack) -> None:
        self._url = f"http://127.0.0.1:{stack.settings['REWARD_PORT']}"
        self._token = stack.settings["REWARD_TOKEN"]

    def ask(self, path: str, body: object = None, *, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token if token is None else token}"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(f"{self._url}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=400) as answer:
            return json.load(answer)

    def score(self, items: list[Item]) -> list[Item]:
        return list(self.ask("/v1/score", {"items": items})["results"])


@pytest.fixture(scope="module")
def container(stack: Stack, step: Step) -> Iterator[str]:
    """The id of the service's container, which is healthy."""
    stack.redis("acl log reset")
    stack.do("up", "-d", "--no-deps", "--no-recreate", "reward", profile="reward")
    [service] = stack.do("ps", "-q", "reward", profile="reward").split()
    until("the reward service healthy", lambda: health(service)["Status"] == "healthy")
    step.done("reward service")
    yield service
    stack.do("rm", "--stop", "--force", "-v", "reward", profile="reward")


@pytest.fixture(scope="module")
def reward(stack: Stack, container: str) -> Reward:
    return Reward(stack)


@pytest.fixture(scope="module")
def items() -> list[Item]:
    """The demo's recorded answers."""
    lines = (ROOT / "demo" / "completions.jsonl").read_text(encoding="utf-8").splitlines()
    names = ("dataset", "problem_id", "completion")
    return [{name: answer[name] for name in names} for answer in map(json.loads, lines)]


@pytest.fixture(scope="module")
def verdicts(expected: Path) -> dict[tuple[str, str, str], Item]:
    """The embedded demo's, by data set, problem and hash of the completion."""
    lines = (expected / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    records = map(json.loads, lines)
    return {(v["dataset"], v["problem_id"], v["completion_sha256"]): v for v in records}


def decided(result: Item) -> tuple[object, ...]:
    """What a result, or a verdict, says of a completion."""
    names = ("accepted", "pass_ratio", "cases_passed", "cases_total")
    return (result.get("status") or result["final_status"], *(result[name] for name in names))


def test_the_demos_answers_get_the_embedded_demos_verdicts(
    reward: Reward, items: list[Item], verdicts: dict[tuple[str, str, str], Item]
) -> None:
    results = reward.score(items)
    assert all(result["judged"] for result in results)
    for item, result in zip(items, results, strict=True):
        name = (item["dataset"], item["problem_id"], sha256(item["completion"]))
        assert decided(result) == decided(verdicts[name])
        assert result["score"] == result["pass_ratio"]
    assert len({result["status"] for result in results}) > 3
    again = reward.score(items)
    assert all(result["cached"] for result in again)
    assert list(map(decided, again)) == list(map(decided, results))


def test_killed_in_mid_batch_it_answers_the_repeated_requests(
    reward: Reward, container: str, stack: Stack, items: list[Item]
) -> None:
    before_kill = list(map(decided, reward.score(items)))
    fresh = [
        {**item, "completion": item["completion"] + "\n" * (number + 1)}
        for number in range(2)
        for item in items
    ]
    process = int(docker("inspect", "-f", "{{.State.Pid}}", container))
    before = _answers(stack)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(reward.score, fresh)
        until("some are judged", lambda: _answers(stack) > before)
        os.kill(process, signal.SIGKILL)
        with pytest.raises((OSError, urllib.error.URLError)):
            first.result()
    until("it is there again", lambda: _answers_to(reward), 60)
    results = reward.score(fresh)
    assert all(result["judged"] for result in results)
    assert Counter(map(decided, results)) == Counter(before_kill * 2)
    assert any(result["cached"] for result in results)
    assert int(docker("inspect", "-f", "{{.RestartCount}}", container)) == 1


def _answers(stack: Stack) -> int:
    return len(stack.redis("--scan --pattern 'plumbline:reward:*:answer:*'").split())


def _answers_to(reward: Reward) -> bool:
    try:
        reward.ask("/v1/info")
    except (OSError, urllib.error.URLError):
        return False
    return True


def test_nothing_is_written_but_samples_and_records(container: str) -> None:
    attempt = (
        "for place in /app /data /data_manifests /etc /samples /scratch /tmp; do "
        "touch $place/x 2>/dev/null && echo $place; done; true"
    )
    writable = docker("exec", container, "sh", "-c", attempt).split()
    assert writable == ["/samples", "/scratch", "/tmp"]
    host = json.loads(docker("inspect", "-f", "{{json .HostConfig}}", container))
    assert (host["ReadonlyRootfs"], host["CapDrop"]) == (True, ["ALL"])
    assert host["Memory"] == 4 << 30


def test_its_user_has_the_rights_that_it_needs(stack: Stack, container: str) -> None:
    """After the requests above, and before those of the next test."""
    log = stack.redis("acl log 128")
    reasons = {line.strip(' "') for line in log.splitlines()}
    assert not {"command", "key", "channel"} & reasons, log
    assert "user reward on" in stack.redis("acl list")
