"""History of runs over the API: groups, trends, differences, and the gate's verdicts."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from redis import Redis

from services.aggregator.publish import publish
from shared.analysis.compare import compare_runs
from shared.analysis.differences import _NEVER_PROTOCOL
from shared.analysis.gate import NamedPolicy, Policy, default_policy, evaluate, read_policy
from shared.analysis.runs import read_runs
from shared.config import Config
from shared.errors import ConfigError
from shared.protocol import Role, leaves
from shared.run_record import RunState
from tests.aggregator.runs import ask, served
from tests.page import trained
from tests.shared.ledgers import put_meta

RULES = {
    "default": {
        "accepted_at_1": {"min_difference": -0.2, "confidence": "point"},
        "costs": {"avg_total_gen_tokens": {"max_ratio": 2.0}},
    }
}
POLICY = NamedPolicy("rules.yaml", Policy.model_validate({**RULES, "datasets": {"other": {}}}))


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[TestClient]:
    async with served(redis, policy=POLICY) as client:
        yield client


def measured(redis: Redis, folder: Path, run: str, right: int, **given: Any) -> Path:
    """A published run; returns its folder."""
    facts = {"name": run, "model": f"model of {run}", "begun": trained.BEGUN, **given}
    output = folder / run
    publish(trained.judged(redis, run, str(output), right, **facts))
    return output


async def history(redis: Redis, first: str | None = None) -> Any:
    """The history of the protocol of the run ``first``, or of the first one listed."""
    async with served(redis, policy=POLICY) as fresh:
        groups = (await ask(fresh, "/api/history"))["groups"]
        wanted = [group for group in groups if first is None or first in group["names"]]
        return await ask(fresh, f"/api/history?protocol={wanted[0]['protocol']}")


async def test_runs_of_one_protocol_are_a_trend_with_published_figures(
    redis: Redis, tmp_path: Path
) -> None:
    measured(redis, tmp_path, "late", 9, begun=trained.BEGUN + 50)
    early = measured(redis, tmp_path, "early", 4)
    answer = await history(redis)
    runs = answer["history"]["runs"]
    assert [run["run"] for run in runs] == ["early", "late"]
    assert runs[0]["model"] == "model of early"
    [loaded] = read_runs([str(early)])
    for name, one in runs[0]["datasets"].items():
        metrics = loaded.summary[name]
        assert one["metrics"].keys() >= {"accepted_at_1", "accepted_at_1_ci95", "throughput"}
        assert one["metrics"].items() <= metrics.items()
    assert answer["groups"][0]["runs"] == 2
    assert answer["history"]["others"] == []


async def test_a_run_in_progress_shows_what_there_is(redis: Redis, tmp_path: Path) -> None:
    ledger = trained.begin(redis, "now", str(tmp_path), name="", model="m", begun=trained.BEGUN)
    trained.answer(ledger, trained.BEGUN, 9, first=6)
    [run] = (await history(redis))["history"]["runs"]
    one = run["datasets"]["humaneval"]
    assert run["name"] is None
    assert (one["planned"], one["judged"], one["metrics"]["accepted_at_1"]) == (12, 6, 0.5)


async def test_two_runs_with_one_name_and_one_start_are_two_points(
    redis: Redis, tmp_path: Path
) -> None:
    measured(redis, tmp_path, "b", 4, name="same")
    measured(redis, tmp_path, "a", 5, name="same")
    runs = (await history(redis))["history"]["runs"]
    assert [(run["run"], run["name"]) for run in runs] == [("a", "same"), ("b", "same")]


async def test_a_run_of_another_version_is_named_and_holds_up_no_other(
    redis: Redis, tmp_path: Path
) -> None:
    measured(redis, tmp_path, "good", 4)
    torn = trained.begin(redis, "torn", "x", name="", model="m", begun=-1e30)
    put_meta(torn, config={"sandbox": {"unknown": 1}})
    answer = await history(redis)
    assert list(answer["unreadable"]) == ["torn"]
    assert "unknown" in answer["unreadable"]["torn"]
    assert [run["run"] for run in answer["history"]["runs"]] == ["good"]


async def test_the_gate_says_what_plumb_gate_says(redis: Redis, tmp_path: Path) -> None:
    folders = [measured(redis, tmp_path, name, right) for name, right in (("A", 9), ("B", 4))]
    rules = Policy.model_validate(RULES)
    expected = evaluate(rules, compare_runs(*read_runs([str(folder) for folder in folders])))
    async with served(redis, policy=POLICY) as client:
        answer = await ask(client, "/api/gate?baseline=A&run=B")
        back = await ask(client, "/api/gate?baseline=B&run=A")
    assert (answer["policy"], answer["outcome"], back["outcome"]) == ("rules.yaml", "fail", "pass")
    lines = {
        (finding["dataset"], finding["rule"], finding["found"], finding["why"])
        for finding in answer["findings"]
    }
    assert lines == {
        (finding.dataset, finding.rule, finding.found, finding.why) for finding in expected.findings
    }
    assert answer["findings"][0]["outcome"] == "fail"


async def test_the_gate_of_runs_without_a_common_data_set_says_why_not(
    redis: Redis, tmp_path: Path
) -> None:
    measured(redis, tmp_path, "one", 4)
    ledger = trained.begin(redis, "none", "x", name="", model="m", begun=trained.BEGUN)
    assert ledger.state() is RunState.RUNNING
    async with served(redis, policy=POLICY) as fresh:
        answer = await ask(fresh, "/api/gate?baseline=one&run=none")
    assert answer["outcome"] is None
    assert "no data set in common" in answer["reason"]


async def test_without_a_policy_there_is_no_verdict(redis: Redis, tmp_path: Path) -> None:
    measured(redis, tmp_path, "one", 4)
    async with served(redis) as client:
        answer = await ask(client, "/api/gate?baseline=one&run=one")
        assert (await ask(client, "/api/history"))["policy"] is None
    assert (answer["outcome"], answer["policy"]) == (None, None)
    assert "PLUMBLINE_GATE_POLICY" in answer["reason"]


@pytest.mark.parametrize(
    ("path", "status", "named"),
    [
        ("/api/history?protocol=none", 404, "/api/history lists"),
        ("/api/history?protocol=", 400, "protocol"),
        ("/api/history?page=2", 400, "page"),
        ("/api/history?protocol=a&protocol=b", 400, "more than once"),
        ("/api/gate", 400, "baseline"),
        ("/api/gate?baseline=x&run=y", 404, "no run 'x'"),
        ("/api/gate?baseline=%ff&run=%00", 404, "no run"),
        ("/api/runs/none/performance", 404, "no run 'none'"),
    ],
)
async def test_invalid_requests_are_refused_in_one_line(
    client: TestClient, path: str, status: int, named: str
) -> None:
    error = (await ask(client, path, status))["error"]
    assert named in error
    assert "\n" not in error


async def test_an_empty_index_has_an_empty_history(client: TestClient) -> None:
    answer = await ask(client, "/api/history")
    assert (answer["groups"], answer["history"], answer["unreadable"]) == ([], None, {})


def test_the_shipped_policy_is_the_default(tmp_path: Path) -> None:
    policy = default_policy()
    assert policy is not None and policy.name == "gate.yaml"
    path = tmp_path / "rules.yaml"
    path.write_text("default: {max_new_failures: 3}\n")
    assert default_policy(path) == NamedPolicy("rules.yaml", read_policy(path))
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        default_policy(tmp_path / "none.yaml")


def test_what_a_trend_leaves_out_of_the_protocol_is_none_of_it() -> None:
    for leaf in leaves(Config):
        section, _, rest = leaf.path.partition(".")
        left_out = _NEVER_PROTOCOL.get(section) or set()
        if isinstance(left_out, bool) or rest.partition(".")[0] in left_out:
            assert leaf.role is not Role.PROTOCOL, leaf.path
