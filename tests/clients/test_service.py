"""The client against the real service, with real Redis, judge and sandbox."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from plumbline_reward import Client, RefusedError, compute_score, compute_score_sync

from services.cli.embedded.supervisor import ChildProcess
from shared.datasets import read_datasets
from shared.reference import reference_of
from tests.conftest import RedisServer
from tests.reward.servers import DEMO, EVERYTHING, demo_completions, judge_process, process
from tests.sandboxes import own_sandbox


@dataclass(frozen=True)
class Answer:
    """A completion of the demo with the status that it deserves."""

    dataset: str
    reference: str
    completion: str
    status: str


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    problems = read_datasets([str(DEMO / "data")])
    references = {(p.dataset, p.problem_id): reference_of(p).text for p in problems}
    chosen: dict[tuple[str, str], Answer] = {}  # one of each outcome in each data set
    for given in demo_completions():
        key = given["dataset"], given["expected_status"]
        if key[1] == "timeout":
            continue  # minutes on a busy machine; parity is tested elsewhere
        reference = references[given["dataset"], given["problem_id"]]
        chosen.setdefault(key, Answer(key[0], reference, given["completion"], key[1]))
    return list(chosen.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reward")


@pytest.fixture(scope="module")
def sandbox(redis_server: RedisServer, folder: Path) -> Iterator[str]:
    """The sandbox of a judge at work."""
    with own_sandbox(folder) as url, judge_process(redis_server.url, url, folder):
        yield url


def start(
    redis_server: RedisServer, folder: Path, **environment: str
) -> AbstractContextManager[tuple[ChildProcess, str]]:
    variables = {"REDIS_URL": redis_server.url, "PLUMBLINE_REWARD_DATA": str(DEMO / "data")}
    return process("reward", "services.reward", folder, **variables, **EVERYTHING, **environment)


@pytest.fixture(scope="module")
def url(sandbox: str, redis_server: RedisServer, folder: Path) -> Iterator[str]:
    with start(redis_server, folder, SANDBOX_URLS=sandbox) as (_, url):
        yield url


def test_compute_score_has_the_verdicts_of_the_demo(url: str, answers: list[Answer]) -> None:
    async def compute() -> list[dict[str, float]]:
        return await asyncio.gather(
            *(compute_score(a.dataset, a.completion, a.reference, {}, url=url) for a in answers)
        )

    scores = asyncio.run(compute())
    items = [{"ground_truth": a.reference, "completion": a.completion} for a in answers]
    verdicts = Client(url).score(items)
    for answer, score, verdict in zip(answers, scores, verdicts, strict=True):
        assert verdict is not None
        assert verdict.status == answer.status
        assert verdict.cached
        assert score["score"] == verdict.score == verdict.pass_ratio
        assert score["acc"] == float(answer.status == "success")
    first = answers[0]
    assert (
        compute_score_sync(first.dataset, first.completion, first.reference, url=url)
        == (scores[0]["score"])
    )


def test_refusals_have_the_services_words_and_hit_nobody_else(
    url: str, answers: list[Answer]
) -> None:
    good = answers[0]
    wrong = {
        "409": good.reference[:-16] + "0" * 16,
        "404": "plumbline:nowhere/1#0123456789abcdef",
        "422": "neither a reference nor JSON",
    }

    async def compute() -> list[object]:
        calls = [
            compute_score(good.dataset, good.completion, truth, {}, url=url)
            for truth in (good.reference, *wrong.values(), good.reference)
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
