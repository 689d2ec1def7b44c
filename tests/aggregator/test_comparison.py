"""`/api/compare` and `/api/compare/flips`: the same as from the folders, bounded, cached, named."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator.app import make_app
from services.aggregator.comparison import read_run
from services.aggregator.index.database import open_database
from services.aggregator.index.overview import find_run
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from services.aggregator.report import load_index
from shared.analysis.compare import compare_runs, comparison_document
from shared.analysis.runs import read_runs
from shared.finished_run import open_run
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import SampleId, sha256
from shared.statuses import FinalStatus
from tests.aggregator.runs import ask, begin, judge, served
from tests.page import trained
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import problem

S = FinalStatus


def fill(redis: Redis, run: str, accepted: str) -> Ledger:
    """A run over problems 0_A, 1_A …: a letter each."""
    problems = [problem(f"{i}_A. p") for i in range(len(accepted))]
    ledger = begin(redis, problems, run, name=run, model=f"model-{run}")
    for i, letter in enumerate(accepted):
        if letter != " ":
            status = S.SUCCESS if letter == "+" else S.WRONG_ANSWER
            passed = {} if letter == "+" else {"pass_ratio": 0.5, "detail": f"detail {run}"}
            judge(ledger, SampleId("d1", f"{i}_A. p"), status, **passed)
    return ledger


@pytest.fixture
async def ingester(redis: Redis) -> Ingester:
    ingester = Ingester(redis)
    fill(redis, "a", "++--+-")
    fill(redis, "b", "+-++ -")
    ingester.catch_up()
    return ingester


@pytest.fixture
async def client(redis: Redis, ingester: Ingester) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        yield client


def url(*runs: str, path: str = "compare", **query: object) -> str:
    listed = ",".join(quote(run, safe="") for run in runs)
    return f"/api/{path}?{urlencode({'runs': listed, **query})}"


async def test_what_is_compared(client: TestClient) -> None:
    answer = await ask(client, "/api/compare?runs=a,b")
    assert [(run["label"], run["folder"]) for run in answer["runs"]] == [("A", "a"), ("B", "b")]
    assert answer["runs"][1]["notes"] == ["running: 1 samples without a verdict so far"]
    (comparison,) = answer["comparisons"]
    assert comparison["mismatches"] == []
    one = comparison["datasets"]["d1"]
    assert (one["samples"], one["samples_gained"], one["samples_lost"]) == (5, 2, 1)
    assert one["left_out"] == {"only_first": 1, "only_second": 0, "api_error": 0, "changed": 0}
    assert one["statuses"] == {
        "success": {"success": 1, "wrong_answer": 1},
        "wrong_answer": {"success": 2, "wrong_answer": 1},
    }
    assert one["accepted_at_1"]["p_value"] == 1.0
    assert (one["gained"], one["lost"]) == ([], [])


async def test_flips_are_listed_in_pages_and_by_filters(client: TestClient) -> None:
    def flips(**query: object) -> str:
        return url("a", "b", path="compare/flips", dataset="d1", **query)

    answer = await ask(client, flips(limit=2))
    names = [flip["problem_id"] for flip in answer["flips"]]
    assert (names, answer["total"], answer["next"]) == (["1_A. p", "2_A. p"], 3, 2)
    assert answer["flips"][0]["second"]["detail"] == "detail b"
    assert answer["flips"][0]["first"]["final_status"] == "success"
    rest = await ask(client, flips(limit=2, offset=2))
    assert ([flip["problem_id"] for flip in rest["flips"]], rest["next"]) == (["3_A. p"], None)
    totals = {
        name: (await ask(client, flips(**query)))["total"]
        for name, query in {
            "gained": {"kind": "gained"},
            "all": {"kind": "all"},
            "status": {"kind": "all", "first": "success", "second": "success"},
            "text": {"kind": "all", "q": "3_a"},
            "slice": {"kind": "all", "dimension": "tag", "bucket": "untagged"},
        }.items()
    }
    assert totals == {"gained": 2, "all": 5, "status": 1, "text": 1, "slice": 5}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("compare?runs=a", 400, "one run cannot be compared"),
        ("compare?runs=a,a", 400, "'a' is given twice"),
        ("compare?runs=a,none", 404, "no run 'none'; there are: a, b"),
        ("compare?runs=a,%00", 404, "no run"),
        ("compare", 400, "runs: Field required"),
        ("compare?runs=a,b&x=1", 400, "x: Extra inputs"),
        ("compare?runs=" + ",".join(map(str, range(11))), 400, "11 runs; give at most 10"),
        ("compare/flips?runs=a,b,c&dataset=d1", 400, "3 runs; give at most 2"),
        ("compare/flips?runs=a,b&dataset=d9", 400, "'d9' is not in both runs; d1 are"),
        ("compare/flips?runs=a,b&dataset=d1&kind=x", 400, "kind: Input should be"),
        ("compare/flips?runs=a,b&dataset=d1&limit=201", 400, "limit: Input should be"),
        ("compare/flips?runs=a,b&dataset=d1&dimension=x&bucket=y", 400, "'x' does not exist"),
        ("compare/flips?runs=a,b&dataset=d1&dimension=tag", 400, "tag has no bucket None"),
        ("compare/flips?runs=a,b&dataset=%ff", 400, "'\ufffd' is not in both runs"),
    ],
)
async def test_what_cannot_be_answered_is_named(
    client: TestClient, path: str, status: int, said: str
) -> None:
    assert said in (await ask(client, f"/api/{path}", status))["error"]


async def test_runs_without_common_data_and_with_commas_in_their_names(
    redis: Redis, client: TestClient, ingester: Ingester
) -> None:
    name = "x,100%25\u202e"
    judge(begin(redis, [problem("p", "d2")], name), SampleId("d2", "p"))
    ingester.catch_up()
    error = (await ask(client, url("a", name), 400))["error"]
    assert error.startswith("A and B have no data set in common: d1 in A, d2 in B")
    judge(begin(redis, [problem("p", "d2")], "y"), SampleId("d2", "p"))
    ingester.catch_up()
    assert (await ask(client, url(name, "y")))["runs"][0]["folder"] == name


async def test_a_run_that_goes_on_or_is_deleted_meanwhile(
    redis: Redis, client: TestClient, ingester: Ingester
) -> None:
    first = await ask(client, url("a", "b"))
    ledger = Ledger(redis, "b")
    judge(ledger, SampleId("d1", "4_A. p"))
    for run in ("a", "b"):
        Ledger(redis, run).set_state(RunState.FAILED)
    ingester.catch_up()
    second = await ask(client, url("a", "b"))
    samples = [one["comparisons"][0]["datasets"]["d1"]["samples"] for one in (first, second)]
    assert samples == [5, 6]
    ledger.delete()
    ingester.catch_up()
    assert "no run 'b'" in (await ask(client, url("a", "b"), 404))["error"]


def test_from_the_index_it_is_the_same_as_from_the_folders(tmp_path) -> None:
    first = write_run(tmp_path / "a", {"one": ["+-", "--", "t+", "!+"], "two": "+-e"})
    part = {"datasets.0.sha256": "zz", "config.data.limit": 3}
    changes = {"digests": {"one": "wxyz", "two": "abc"}, "change": part, "checker": "lines"}
    second = write_run(tmp_path / "b", {"one": ["++", "-t", "++", "-+"], "two": "+ee"}, **changes)
    folders = read_runs([first, second])
    indexed = []
    for run in folders:
        database = open_database()
        name = load_index(open_run(run.place), database)
        with database.read() as connection:
            found = find_run(connection, name)
            assert found is not None
            indexed.append(replace(read_run(connection, found), label=run.label))
        database.close()
    from_folders, from_index = (
        json.loads(json.dumps(asdict(comparison_document([compare_runs(*runs)], flips=False))))
        for runs in (folders, indexed)
    )
    assert from_index["comparisons"] == from_folders["comparisons"]


# All answers to a problem, problems by runs, and scores


STATUSES = {"+": S.SUCCESS, "-": S.WRONG_ANSWER, "!": S.API_ERROR}


def answer(redis: Redis, run: str, begun: float, answers: dict[str, str]) -> None:
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


async def answer_to(redis: Redis, path: str, status: int = 200) -> Any:
    async with served(redis) as client:
        return await ask(client, path, status)


async def test_all_answers_to_a_problem(redis: Redis) -> None:
    answer(redis, "a", 1.0, {"p": "+----", "q": "+"})
    answer(redis, "b", 2.0, {"p": "-!"})
    answer(redis, "c", 3.0, {"q": "-"})
    found = await answer_to(redis, "/api/problems/d1/p")
    assert found["outline"]["prompt"] == "Solve p of b."
    assert (found["accepted"], found["judged"]) == (1, 6)
    latest, earlier = found["runs"]
    assert (latest["run"], latest["name"], latest["judged"]) == ("b", "name of b", 1)
    assert [one["final_status"] for one in latest["answers"]] == ["wrong_answer", "api_error"]
    assert earlier["pass_at"] == pytest.approx({"1": 0.2, "5": 1.0})
    assert (latest["changed"], earlier["changed"]) == (False, True)
    assert "d1/none" in (await answer_to(redis, "/api/problems/d1/none", 404))["error"]


async def test_problems_by_runs_begin_with_the_largest_difference(redis: Redis) -> None:
    answer(redis, "a", 1.0, {"p": "++", "q": "+-", "r": "+", "s": "!"})
    answer(redis, "b", 2.0, {"p": "++", "q": "--", "r": "-", "t": "+"})
    found = await answer_to(redis, "/api/compare/grid?runs=a,b&dataset=d1&limit=3")
    assert found["total"] == 4
    shares = {row["problem_id"]: row["shares"] for row in found["rows"]}
    assert shares == {"r": [1.0, 0.0], "q": [0.5, 0.0], "p": [1.0, 1.0]}
    assert list(shares) == ["r", "q", "p"]
    found = await answer_to(redis, "/api/compare/grid?runs=a,b&dataset=d1&offset=3")
    assert found["rows"] == [{"problem_id": "t", "shares": [None, 1.0]}]
    for runs, hardest in {
        "a,b": ["q", "r", "p", "t"],
        "b": ["q", "r", "p", "t"],
        "a": ["q", "p", "r"],
    }.items():
        found = await answer_to(redis, f"/api/compare/grid?runs={runs}&dataset=d1&first=hardest")
        assert [row["problem_id"] for row in found["rows"]] == [*hardest], runs


async def test_scores_are_compared_with_the_run_before_of_the_same_protocol(
    redis: Redis, tmp_path: Path
) -> None:
    for number, (right, timeout) in enumerate([(4, 10), (9, 5), (7, 10)]):
        begun = trained.BEGUN + number * trained.DAY
        run = f"r{number}"
        facts = {"name": run, "model": "m", "begun": begun, "timeout": timeout}
        publish(trained.judged(redis, run, str(tmp_path / run), right, **facts))
    runs = await answer_to(redis, "/api/runs")
    scores = [runs[f"r{number}"]["scores"]["humaneval"] for number in range(3)]
    assert [round(score["metrics"]["accepted_at_1"] * 12) for score in scores] == [4, 9, 7]
    assert [score["difference"] is None for score in scores] == [True, True, False]
    assert round(scores[2]["difference"] * 12) == 3
    assert all(len(score["metrics"]["accepted_at_1_ci95"]) == 2 for score in scores)
