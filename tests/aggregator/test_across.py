"""Questions across runs over the API: a problem's answers, problems by runs, and scores."""

from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from services.aggregator.publish import publish
from shared.run_record import RunState
from shared.schemas import SampleId, sha256
from shared.statuses import FinalStatus
from tests.aggregator.runs import ask, begin, judge, served
from tests.page import trained
from tests.shared.ledgers import problem

S = FinalStatus
STATUSES = {"+": S.SUCCESS, "-": S.WRONG_ANSWER, "!": S.API_ERROR}


def fill(redis: Redis, run: str, begun: float, answers: dict[str, str]) -> None:
    """A run with some answers to each problem, a letter each."""
    prompts = {name: f"Solve {name} of {run}." for name in answers}
    problems = [
        problem(name, prompt=prompt, prompt_sha256=sha256(prompt))
        for name, prompt in prompts.items()
    ]
    ledger = begin(redis, problems, run, name=f"name of {run}", model="m", started_at=begun)
    for name, letters in answers.items():
        for index, letter in enumerate(letters):
            judge(ledger, SampleId("d1", name, index), STATUSES[letter])


async def asked(redis: Redis, path: str, status: int = 200) -> Any:
    async with served(redis) as client:
        return await ask(client, path, status)


async def test_all_answers_to_a_problem(redis: Redis) -> None:
    fill(redis, "a", 1.0, {"p": "+----", "q": "+"})
    fill(redis, "b", 2.0, {"p": "-!"})
    fill(redis, "c", 3.0, {"q": "-"})
    found = await asked(redis, "/api/problems/d1/p")
    assert found["outline"]["prompt"] == "Solve p of b."
    assert (found["accepted"], found["judged"]) == (1, 6)
    latest, earlier = found["runs"]
    assert (latest["run"], latest["name"], latest["judged"]) == ("b", "name of b", 1)
    assert [one["final_status"] for one in latest["answers"]] == ["wrong_answer", "api_error"]
    assert earlier["pass_at"] == pytest.approx({"1": 0.2, "5": 1.0})
    assert (latest["changed"], earlier["changed"]) == (False, True)
    assert "d1/none" in (await asked(redis, "/api/problems/d1/none", 404))["error"]


async def test_problems_by_runs_begin_with_the_largest_difference(redis: Redis) -> None:
    fill(redis, "a", 1.0, {"p": "++", "q": "+-", "r": "+", "s": "!"})
    fill(redis, "b", 2.0, {"p": "++", "q": "--", "r": "-", "t": "+"})
    found = await asked(redis, "/api/compare/grid?runs=a,b&dataset=d1&limit=3")
    assert found["total"] == 4
    shares = {row["problem_id"]: row["shares"] for row in found["rows"]}
    assert shares == {"r": [1.0, 0.0], "q": [0.5, 0.0], "p": [1.0, 1.0]}
    assert list(shares) == ["r", "q", "p"]
    found = await asked(redis, "/api/compare/grid?runs=a,b&dataset=d1&offset=3")
    assert found["rows"] == [{"problem_id": "t", "shares": [None, 1.0]}]
    for runs, hardest in {
        "a,b": ["q", "r", "p", "t"],
        "b": ["q", "r", "p", "t"],
        "a": ["q", "p", "r"],
    }.items():
        found = await asked(redis, f"/api/compare/grid?runs={runs}&dataset=d1&first=hardest")
        assert [row["problem_id"] for row in found["rows"]] == [*hardest], runs


async def test_scores_are_compared_with_the_run_before_of_the_same_protocol(
    redis: Redis, tmp_path: Path
) -> None:
    for number, (right, timeout) in enumerate([(4, 10), (9, 5), (7, 10)]):
        begun = trained.BEGUN + number * trained.DAY
        run = f"r{number}"
        ledger = trained.begin(
            redis, run, str(tmp_path / run), name=run, model="m", begun=begun, timeout=timeout
        )
        trained.answer(ledger, begun, right)
        ledger.set_state(RunState.JUDGED)
        publish(ledger)
    runs = await asked(redis, "/api/runs")
    scores = [runs[f"r{number}"]["scores"]["humaneval"] for number in range(3)]
    assert [round(one["accepted_at_1"] * 12) for one in scores] == [4, 9, 7]
    assert [one["difference"] is None for one in scores] == [True, True, False]
    assert round(scores[2]["difference"] * 12) == 3
    assert all(len(one["ci95"]) == 2 for one in scores)
