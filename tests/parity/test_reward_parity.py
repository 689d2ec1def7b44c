"""The same verdict from `plumb judge`, from the reward service, and from a trainer's reward."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import plumbline_reward
import pytest

from services.data.records import write_dataset
from shared.function_plan import fault_of
from shared.reference import reference_of
from shared.statuses import FinalStatus
from tests.e2e import plumb
from tests.e2e.reward import reward_service
from tests.parity.pairs import Pair, pairs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PAIRS = 1000
# The seconds of the demo. What takes longer is judged three times here.
SETTINGS = ["sandbox.timeout=2", "judge.workers=2"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, marks=pytest.mark.nightly, id="all"), pytest.param(10, id="a tenth")],
)
def chosen(request: pytest.FixtureRequest) -> list[Pair]:
    """Every pair, or every tenth one, whose tests can run: a run begins with no others."""
    return [pair for pair in pairs(PAIRS)[:: request.param] if not fault_of(pair.problem.tests)]


@pytest.fixture(scope="module")
def data(chosen: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    problems = {(pair.problem.dataset, pair.problem.problem_id): pair.problem for pair in chosen}
    for dataset in {dataset for dataset, _ in problems}:
        own = [problem for key, problem in problems.items() if key[0] == dataset]
        write_dataset(str(folder / f"{dataset}.parquet"), own)
    return folder


@pytest.fixture(scope="module")
def judged(
    chosen: list[Pair], data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """The verdicts of `plumb judge`, in the order of the pairs."""
    folder = tmp_path_factory.mktemp("judged")
    rows = [
        {
            "dataset": pair.problem.dataset,
            "problem_id": pair.problem.problem_id,
            "sample_index": pair.index,
            "completion": pair.completion,
        }
        for pair in chosen
    ]
    completions = folder / "completions.jsonl"
    completions.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["judge", "--data", str(data), "--completions", str(completions), "--embedded"]
    output = folder / "run"
    done = plumb.plumb(plumb.command(*arguments, "--output", str(output), *SETTINGS), timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts = {
        (row["dataset"], row["problem_id"], row["sample_index"]): row
        for row in plumb.read_jsonl(output / "verdicts.jsonl")
    }
    return [verdicts[pair.problem.dataset, pair.problem.problem_id, pair.index] for pair in chosen]


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[str]:
    """The address of a reward service."""
    with reward_service(data, *SETTINGS, allow_eval=True) as service:
        yield service.url


def test_the_pairs_have_every_outcome(judged: list[dict[str, Any]]) -> None:
    statuses = {row["final_status"] for row in judged}
    assert statuses == set(FinalStatus) - {FinalStatus.API_ERROR}


def test_the_service_gives_the_same_verdicts(
    chosen: list[Pair], judged: list[dict[str, Any]], service: str
) -> None:
    _assert_same(judged, asyncio.run(_scored(service, chosen)))


def test_a_trainers_reward_gives_the_same_verdicts(
    chosen: list[Pair],
    judged: list[dict[str, Any]],
    service: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", service)
    rewards = asyncio.run(_rewarded(chosen))
    for pair, verdict, reward in zip(chosen, judged, rewards, strict=True):
        place = pair.problem.problem_id, pair.index, verdict["final_status"]
        assert reward["score"] == verdict["pass_ratio"], place
        assert reward["acc"] == float(verdict["accepted"]), place


async def _scored(url: str, chosen: list[Pair]) -> list[dict[str, Any]]:
    items = [
        {
            "dataset": pair.problem.dataset,
            "problem_id": pair.problem.problem_id,
            "completion": pair.completion,
        }
        for pair in chosen
    ]
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(900)) as session,
        session.post(f"{url}/v1/score", json={"items": items}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        results: list[dict[str, Any]] = (await answer.json())["results"]
        return results


async def _rewarded(chosen: list[Pair]) -> list[dict[str, Any]]:
    calls = (
        plumbline_reward.compute_score(
            data_source=pair.problem.data_source,
            solution_str=pair.completion,
            ground_truth=reference_of(pair.problem).text,
            extra_info={"index": pair.index},
        )
        for pair in chosen
    )
    return await asyncio.gather(*calls)


def _assert_same(judged: list[dict[str, Any]], scored: list[dict[str, Any]]) -> None:
    differing = [
        (verdict["problem_id"], verdict["sample_index"], verdict["final_status"], result)
        for verdict, result in zip(judged, scored, strict=True)
        if not _is_same(verdict, result)
    ]
    assert differing == []


def _is_same(verdict: dict[str, Any], result: dict[str, Any]) -> bool:
    return bool(
        result["judged"]
        and result["status"] == verdict["final_status"]
        and result["accepted"] == verdict["accepted"]
        and result["score"] == result["pass_ratio"] == verdict["pass_ratio"]
        and result["cases_passed"] == verdict["cases_passed"]
        and result["cases_total"] == verdict["cases_total"]
    )
