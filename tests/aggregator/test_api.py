import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from sqlite3 import Connection

import pytest
from aiohttp.test_utils import TestClient, TestServer
from pydantic import TypeAdapter
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from yarl import URL

from services.aggregator.app import STATIC, make_app
from services.aggregator.cases import CasePage
from services.aggregator.index.overview import IndexedRun, PassRatioCounts
from services.aggregator.ingest import Ingester
from services.aggregator.marks import Difference
from services.aggregator.routes import ROUTES
from services.aggregator.run_answers import RunDetail, RunSummary, SampleDetail
from shared.case_records import SampleCases
from shared.ledger import Ledger, connect
from shared.run_record import OutageReport, RunnerReport
from shared.schemas import CaseResult, SampleId
from shared.service.openapi import Route
from shared.statuses import FinalStatus
from tests.aggregator.runs import ask, begin, judge, served
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, problem, put_meta

NOW = 1_750_000_000.0


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    problems = [problem(f"p{i}", difficulty="hard" if i < 2 else "") for i in range(6)]
    problems.append(problem("q", "d2", extra_info='{"tags": ["dp"]}'))
    ledger = begin(
        redis,
        problems,
        name="mine",
        started_at=NOW - 50,
        config={"actor_rollout_ref": {"model": {"path": "org/model"}}},
        versions={"python": "3.11"},
        seed=3,
    )
    judge(
        ledger,
        SampleId("d1", "p0"),
        made={"output_tokens": 10, "gen_time": 1.0, "finished_at": NOW - 30},
        judged_at=NOW - 20,
    )
    partly = {"pass_ratio": 0.25, "cases_passed": 1, "cases_total": 4, "cases_not_run": 2}
    judge(ledger, SampleId("d1", "p1"), FinalStatus.TIMEOUT, judged_at=NOW - 10, **partly)
    judge(ledger, SampleId("d1", "p2"), FinalStatus.API_ERROR, detail="sandbox: http_503")
    judge(ledger, SampleId("d1", "p3"), FinalStatus.WRONG_ANSWER)
    judge(ledger, SampleId("d2", "q"))
    ledger.record(generation("p4"))
    return ledger


@pytest.fixture
async def client(redis: Redis, ledger: Ledger) -> AsyncIterator[TestClient]:
    async with served(redis) as client:
        yield client


async def test_the_runs(client: TestClient) -> None:
    (found,) = (await ask(client, "/api/runs")).values()
    run = TypeAdapter(RunSummary).validate_python(found)
    assert (run.run, run.name, run.state, run.model) == ("run-1", "mine", "running", "org/model")
    assert run.started_at == NOW - 50
    assert run.verdicts == 5
    assert run.datasets == {
        "d1": {"success": 1, "timeout": 1, "api_error": 1, "wrong_answer": 1},
        "d2": {"success": 1},
    }
    assert asdict(run.progress) == {
        "planned": 7,
        "generated": 6,
        "judged": 4,
        "api_errors": 1,
        "ratio": pytest.approx(5 / 7),
    }
    assert (run.seconds_left, run.stopped_at, run.outages) == (None, None, [])


async def test_the_health_of_a_run(redis: Redis, ledger: Ledger) -> None:
    ledger.lock("runner", 60)
    ledger.report(RunnerReport(at=NOW, seconds_left=40.0))
    outage = OutageReport(what="no judge is there", since=NOW - 5)

    async def found() -> RunDetail:
        async with served(redis) as client:
            return TypeAdapter(RunDetail).validate_python(await ask(client, "/api/runs/run-1"))

    run = await found()
    assert (run.summary.seconds_left, run.summary.stopped_at) == (40.0, None)
    assert run.unjudged == {"sandbox: http_503": 1}
    ledger.report(RunnerReport(at=NOW, outages=[outage]))
    run = await found()
    assert (run.summary.seconds_left, run.summary.outages) == (None, [outage])
    ledger.unlock("runner")
    run = await found()
    assert (run.summary.seconds_left, run.summary.stopped_at) == (None, NOW)
    assert run.summary.outages == []


CASES = SampleCases(
    recorded="all",
    cases=tuple(
        CaseResult(case_index=n, status=FinalStatus.TIMEOUT if n in (3, 5) else status, actual="x")
        for n, status in enumerate([FinalStatus.SUCCESS] * 6 + ["not_run"])
    ),
)


async def test_the_cases_of_a_sample(redis: Redis, ledger: Ledger) -> None:
    judge(ledger, SampleId("d1", "p5"), FinalStatus.TIMEOUT, cases=CASES)
    async with served(redis) as client:
        there = "/api/runs/run-1/samples/d1/p5/0/cases"
        first = TypeAdapter(CasePage).validate_python(await ask(client, f"{there}?limit=4"))
        assert (first.recorded, first.total, first.next) == ("all", 7, 4)
        assert [case.case_index for case in first.cases] == [3, 5, 6, 0]
        assert first.marks[3].difference == Difference([(0, 0, 1)], [(0, 0, 1)])
        rest = TypeAdapter(CasePage).validate_python(await ask(client, f"{there}?limit=4&offset=4"))
        assert [case.case_index for case in rest.cases] == [1, 2, 4]
        assert rest.next is None
        # The problem has one test; of the other cases it tells nothing.
        assert [case.input for case in first.cases] == [None, None, None, "1\n"]
        assert first.cases[0].problem_id == "p5"
        beyond = await ask(client, f"{there}?offset=100")
        assert (beyond["cases"], beyond["next"], beyond["total"]) == ([], None, 7)
        unrecorded = await ask(client, "/api/runs/run-1/samples/d1/p0/0/cases")
        assert unrecorded == {"recorded": None, "total": 0, "cases": [], "marks": [], "next": None}
        for query in ("limit=0", "limit=201", "offset=-1", "x=1", "limit=1&limit=1"):
            await ask(client, f"{there}?{query}", 400)
        await ask(client, "/api/runs/run-1/samples/d1/none/0/cases", 404)
        await ask(client, "/api/runs/none/samples/d1/p5/0/cases", 404)


async def test_a_run(client: TestClient, ledger: Ledger) -> None:
    run = TypeAdapter(RunDetail).validate_python(await ask(client, "/api/runs/run-1"))
    assert run.facts["versions"] == {"python": "3.11"}
    assert run.facts["config"]["actor_rollout_ref"]["model"]["path"] == "org/model"
    assert run.facts["seed"] == 3
    assert "plan" not in run.facts
    d1 = run.datasets["d1"]
    assert (d1.planned_problems, d1.planned_samples, d1.judged, d1.accepted) == (6, 6, 3, 1)
    assert d1.pass_ratios == PassRatioCounts(1, [0, 0, 1] + [0] * 7, 1)
    assert (d1.samples_cut, run.datasets["d2"].samples_cut) == (1, 0)
    assert (d1.output_tokens.p50, d1.gen_time.p99) == (10, 1.0)
    assert run.datasets["d2"].gen_time.p50 is None


async def test_what_was_published_is_told_until_the_run_goes_on(
    redis: Redis, ledger: Ledger
) -> None:
    results = {"metrics": {"d1": {"pass_at_1": 0.5}}, "slices": {"d1": {"tag": {"dp": {"n": 2}}}}}
    ingester = Ingester(redis)
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        for state, told in (("running", None), ("complete", results), ("running", None)):
            put_meta(ledger, state=state, results=results)
            ingester.catch_up()
            run = await ask(client, "/api/runs/run-1")
            assert {"metrics": run["metrics"], "slices": run["slices"]} == (
                told or {"metrics": None, "slices": None}
            )
            assert "results" not in run["facts"]


# Each with the words that its refusal has.
INVALID_FILTERS = {
    "status=timeout,fine": "status.1: Input should be 'success', 'wrong_answer'",
    "status=": "status",
    "dataset=a,,b": "a value is empty",
    "tag=" + ",".join(map(str, range(51))): "more than 50 values",
    "extraction=fence": "extraction.0: Input should be",
    "in=prompt,code": "in.1: Input should be 'prompt', 'completion' or 'stderr'",
    "tokens=5": "not a range; write MIN..MAX, MIN.. or ..MAX",
    "tokens=..": "not a range",
    "cpu=a..": "cpu",
    "flipped=yes": "flipped",
    "group=x": "group",
    "text=" + "x" * 201: "text",
    "texts=x": "texts",
}


INVALID_PAGES = [
    *("limit=0", "limit=201", "limit=x", "limit=" + "9" * 400, "sort=detail", "order=up"),
    *("nonsense=1", "q=" + "x" * 201, "limit=1&limit=2", "offset=-1", "offset=" + "9" * 30),
]


async def test_invalid_filters_are_refused(client: TestClient) -> None:
    async def error(path: str, query: str) -> str:
        return (await ask(client, URL(f"/api/runs/run-1/{path}?{query}", encoded=True), 400))[
            "error"
        ]

    for query, words in INVALID_FILTERS.items():
        for path in ("samples", "facets", "failures"):
            assert words in await error(path, query)
    for query in INVALID_PAGES:
        assert "\n" not in await error("samples", query)


async def test_a_sample(client: TestClient, ledger: Ledger) -> None:
    sample = TypeAdapter(SampleDetail).validate_python(
        await ask(client, "/api/runs/run-1/samples/d1/p2/0")
    )
    assert (sample.outline.prompt, sample.outline.difficulty) == ("Solve p2.", "")
    assert sample.outline.messages is None
    prompts = {"d1": {"template": "Do: {prompt}", "sha256": ""}}
    put_meta(ledger, prompts=prompts, system_prompt={"text": "Be brief.", "sha256": ""})
    async with served(ledger.redis) as late:
        answer = await ask(late, "/api/runs/run-1/samples/d1/p2/0")
    sent = TypeAdapter(SampleDetail).validate_python(answer)
    assert [(one.role, one.content) for one in sent.outline.messages or []] == [
        ("system", "Be brief."), ("user", "Do: Solve p2.")
    ]  # fmt: skip
    assert sample.generation == ledger.completion(SampleId("d1", "p2"))
    assert sample.verdict == ledger.verdict(SampleId("d1", "p2"))
    await ask(client, "/api/runs/run-1/samples/d1/p4/0", 404)  # not judged yet


UNKNOWN = [
    *("run-1/samples/d1/p5/0", "run-1/samples/d1/p0/1", "run-1/samples/d1/p0/x"),
    *("run-1/samples/d1/p0/-1", "run-1/samples/d1/p0/1e3"),
    *("other", "other/samples", "other/samples/d1/p1/0"),
    *("run-1/samples/x", "../nothing", "..", "../../nothing"),
]


async def test_unknown_runs_samples_and_paths(client: TestClient) -> None:
    for path in UNKNOWN:
        answer = await ask(client, f"/api/runs/{path}", 404)
        assert list(answer) == ["error"], path
        if path.startswith("other"):
            assert "other" in answer["error"] and "run-1" in answer["error"], path


async def test_a_proxy_may_decode_the_slash_of_a_problem(redis: Redis) -> None:
    judge(begin(redis, [problem("d1", "HumanEval/0")]), SampleId("d1", "HumanEval/0"))
    async with served(redis) as client:
        for name in ("HumanEval/0", "HumanEval%2F0"):
            address = f"/api/runs/run-1/samples/d1/{name}/0"
            sample = await ask(client, URL(address, encoded=True))
            cases = await ask(client, URL(f"{address}/cases", encoded=True))
            problems = await ask(client, URL(f"/api/problems/d1/{name}", encoded=True))
            assert (sample["verdict"]["problem_id"], cases["total"]) == ("HumanEval/0", 0), name
            assert problems["judged"] == 1, name


async def test_nothing_can_be_changed(client: TestClient) -> None:
    async with client.post("/api/runs") as answer:
        assert (answer.status, list(await answer.json())) == (405, ["error"])
        assert "GET" in answer.headers["Allow"]


async def test_no_answer_may_be_kept_guessed_or_run(client: TestClient) -> None:
    for path in ("/api/runs", "/api/runs/other", "/nothing", "/metrics"):
        async with client.get(path) as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_few_samples_are_read_at_once(
    redis: Redis, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one keeps other threads from running, that of the event loop too."""
    ingester = Ingester(redis)
    ingester.catch_up()
    read, at_once = SampleDetail.of, [0, 0]

    def slow(connection: Connection, run: IndexedRun, sample: SampleId) -> SampleDetail | None:
        at_once[0] += 1
        at_once[1] = max(at_once)
        time.sleep(0.05)
        at_once[0] -= 1
        return read(connection, run, sample)

    monkeypatch.setattr(SampleDetail, "of", slow)
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        path = "/api/runs/run-1/samples/d1/p1/0"
        answers = await asyncio.gather(*(ask(client, path) for _ in range(8)))
    assert [answer["verdict"]["problem_id"] for answer in answers] == ["p1"] * 8
    assert at_once[1] == 2
    ingester.stop()


# OpenAPI


@pytest.fixture
async def two_runs(redis: Redis) -> AsyncIterator[TestClient]:
    for run in ("run-1", "run-2"):
        judge(begin(redis, [problem("p1")], run), SampleId("d1", "p1"), judged_at=5.0)
    async with served(redis) as two_runs:
        yield two_runs


@pytest.mark.parametrize("route", [r for r in ROUTES if r.answer], ids=lambda r: r.name)
async def test_answers_are_as_described(two_runs: TestClient, route: Route) -> None:
    """The schemas are made from the models, which forbid what they do not name."""
    values = {"run": "run-1", "dataset": "d1", "problem_id": "p1", "sample_index": 0}
    runs = "?runs=run-1,run-2"
    queries = {
        "compare_runs": runs,
        "list_flips": f"{runs}&dataset=d1&kind=all",
        "show_grid": f"{runs}&dataset=d1",
        "show_gate": "?baseline=run-1&run=run-1",
    }
    answer = await ask(two_runs, route.path.format(**values) + queries.get(route.name, ""))
    assert route.answer is not None
    adapter = TypeAdapter(route.answer)
    assert adapter.dump_python(adapter.validate_python(answer), mode="json") == answer


# Health checks, an absent Redis, and the files of the page


FILES = sorted(path.name for path in STATIC.iterdir())


async def test_without_redis_it_is_alive_and_not_ready(own_redis_server: RedisServer) -> None:
    redis = Redis.from_url(own_redis_server.url, retry=Retry(NoBackoff(), 0))
    async with served(redis) as client:
        assert await ask(client, "/readyz") == {"ready": True}
        own_redis_server.kill()
        body = await ask(client, "/readyz", 503)
        assert body["ready"] is False
        assert body["reason"].startswith("Redis: ")
        assert await ask(client, "/healthz") == {"status": "alive"}
    redis.close()


async def test_without_redis_the_index_still_answers(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server.url)
    ingester = Ingester(redis)
    ledger = begin(redis, [problem("p1")])
    assert ledger.lock("runner", 600.0)
    judge(ledger, SampleId("d1", "p1"))
    ingester.catch_up()
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        own_redis_server.kill()
        assert list(await ask(client, "/api/runs")) == ["run-1"]
        async with client.get("/metrics") as answer:
            assert "plumbline_runs_running 1.0" in await answer.text()
        sample = "/api/runs/run-1/samples/d1/p1/0"
        assert (await ask(client, sample))["verdict"]["accepted"]
        assert list(await ask(client, f"{sample}/cases", 503)) == ["error"]
    redis.close()


# The page's files are served whole, with a policy under which only their scripts run.


async def test_files_are_served_with_the_policy(client: TestClient) -> None:
    for name in FILES:
        async with client.get("/" if name == "index.html" else f"/static/{name}") as answer:
            assert answer.status == 200, name
            assert await answer.read() == (STATIC / name).read_bytes(), name
            policy = answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff", name
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert directives["default-src"] == "'none'", name
        assert directives["script-src"] == directives["style-src"] == "'self'", name
        assert "unsafe" not in policy, name


async def test_nothing_else_is_served(client: TestClient) -> None:
    for path in ("/static/", "/static/..%2f__init__.py", "/static/none.js"):
        async with client.get(path) as answer:
            assert answer.status == 404


def test_files_name_only_files_that_exist() -> None:
    named = set()
    for name in FILES:
        text = (STATIC / name).read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
        named |= set(re.findall(r'"(?:static|\.)/([\w.]+)"', text))
    assert named == set(FILES) - {"index.html"}


def test_text_of_data_is_never_parsed_as_markup() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    )
    scripts = [name for name in FILES if name.endswith(".js")]
    assert [name for name in scripts if re.search(forbidden, (STATIC / name).read_text())] == []
