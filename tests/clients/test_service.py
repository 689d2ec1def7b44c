"""The client against the real service, with real Redis, judge and sandbox."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from plumbline_reward import Client, RefusedError, compute_score

from shared.datasets import read_datasets
from shared.reference import reference_of
from tests.conftest import RedisServer
from tests.reward.servers import DEMO, EVERYTHING, judge_process, process
from tests.sandboxes import own_sandbox


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reward")


@pytest.fixture(scope="module")
def url(redis_server: RedisServer, folder: Path) -> Iterator[str]:
    """A service that knows the demo, with a judge at work."""
    variables = {"REDIS_URL": redis_server.url, "PLUMBLINE_REWARD_DATA": str(DEMO / "data")}
    with (
        own_sandbox(folder) as sandbox,
        judge_process(redis_server.url, sandbox, folder),
        process(
            "reward", "services.reward", folder, **variables, **EVERYTHING, SANDBOX_URLS=sandbox
        ) as (_, url),
    ):
        yield url


def test_refusals_have_the_services_words_and_hit_nobody_else(url: str) -> None:
    problem = read_datasets([str(DEMO / "data")])[0]
    reference = reference_of(problem).text
    wrong = {
        "409": reference[:-16] + "0" * 16,
        "404": "plumbline:nowhere/1#0123456789abcdef",
        "422": "neither a reference nor JSON",
    }

    async def compute() -> list[object]:
        calls = [
            compute_score(problem.dataset, "```python\nprint(1)\n```", truth, {}, url=url)
            for truth in (reference, *wrong.values(), reference)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, *refused, last = asyncio.run(compute())
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert first["score"] == last["score"]
    for status, error in zip(wrong, refused, strict=True):
        assert isinstance(error, RefusedError)
        assert str(error.status) == status
        assert "items[" not in str(error)


def test_programs_run_in_the_sandbox(url: str) -> None:
    client = Client(url, timeout=60)
    assert client.run("print(int(input()) * 6)", stdin="7\n").stdout == "42\n"
    failed = client.run("print('before')\nraise SystemExit(3)")
    assert (failed.status, failed.exit_code, failed.stdout) == ("error", 3, "before\n")
    assert client.run("while True: pass", timeout=1).status == "timeout"
    long = client.run("print('x' * 200_000)")
    assert long.truncated
    assert 0 < len(long.stdout) < 200_000
    with pytest.raises(RefusedError):
        client.run("1", language="cobol")
