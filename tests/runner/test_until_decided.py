"""Early stop of a run when a policy is decided."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from services.runner.run import Run
from services.runner.session import Session
from services.runner.until_decided import UntilDecided
from shared.analysis.gate import NamedPolicy, Policy
from shared.analysis.runs import read_runs
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.errors import ConfigError
from shared.ledger.keys import RunKeys
from shared.run_record import Provenance, RunState, make_plan
from shared.schemas import Generation, SampleId
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.runner.test_run import FakeProgress, Others, Stage
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import generation, problem, verdict

PROBLEMS = [problem(f"p{place:03}", "one") for place in range(60)]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))
POLICY = {"default": {"accepted_at_1": {"min_difference": 0.0}}}


class SlowSource:
    """Answers one after another; the last request of a run that stops early is cancelled."""

    def __init__(self) -> None:
        self.asked: list[SampleId] = []
        self.cancelled = False

    async def __call__(self, owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        self.asked = list(owed)
        try:
            for sample in owed:
                await asyncio.sleep(0.01)
                yield [generation(sample, "answer")]
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@pytest.fixture
def stage(redis: Redis, tmp_path: Path) -> Stage:
    return Stage(redis, OutputFolder(str(tmp_path / "b")), PLAN)


@pytest.fixture
def others(stage: Stage, redis_server: RedisServer) -> Iterator[Others]:
    working = Others(redis_server.url, stage.identity.run, judging=True)
    yield working
    working.stop()


def until_decided(folder: Path, answers: str, policy: dict = POLICY, **change: object):
    """The decision against a run with these answers, a letter per problem."""
    known = {"prompts": None, "datasets.0.sha256": PLAN.datasets[0].sha256, **change}
    place = write_run(folder / f"a{len(list(folder.iterdir()))}", {"one": answers}, change=known)
    named = NamedPolicy("gate.yaml", Policy.model_validate(policy))
    return UntilDecided(named, read_runs([place])[0], PLAN, 0)


async def session(stage: Stage, early_stop: UntilDecided | None, plan=PLAN) -> SlowSource:
    opened, source = Session(stage.redis, stage.identity), SlowSource()
    opened.enter(load_config(None), PROBLEMS, stage.folder, force=False, provenance=Provenance())
    stage.progress = FakeProgress()
    try:
        run = Run(plan, opened, source, stage.progress, early_stop, tick=0.05)
        await run.complete()
    finally:
        opened.leave()
    return source


def judging(others: Others, status: FinalStatus) -> None:
    others.judge = lambda completion: verdict(completion, status)


@pytest.mark.parametrize(
    ("answers", "status", "outcome"),
    [("-" * 60, FinalStatus.SUCCESS, "go"), ("+" * 60, FinalStatus.WRONG_ANSWER, "no-go")],
)
async def test_a_run_stops_when_its_policy_is_decided(
    stage: Stage, others: Others, tmp_path: Path, answers: str, status: FinalStatus, outcome: str
) -> None:
    judging(others, status)
    early_stop = until_decided(tmp_path, answers)
    source = await session(stage, early_stop)
    meta, plan = stage.ledger.meta(), stage.ledger.plan()
    assert meta is not None and meta.stopped is not None and plan is not None
    stopped = meta.stopped
    assert (stopped.outcome, stopped.rules) == (outcome, ["one accepted_at_1"])
    assert (stopped.planned, meta.state) == (60, RunState.COMPLETE)
    assert 5 < stopped.problems < 60
    # The run is the first problems of the random order; the others left nothing.
    assert source.asked == early_stop.in_order(PLAN.samples()) != PLAN.samples()
    first = set(source.asked[: stopped.problems])
    assert set(plan.samples()) == stage.ledger.judged() == set(stage.ledger.completed()) == first
    assert source.cancelled
    assert stage.ledger.queue.present() == set()
    assert plan.datasets[0].sha256 == PLAN.datasets[0].sha256
    assert stopped.described in stage.progress.notes


async def test_a_stopped_run_that_was_killed_is_only_published(
    stage: Stage, others: Others, tmp_path: Path
) -> None:
    judging(others, FinalStatus.SUCCESS)
    others.publishing = False
    working = asyncio.ensure_future(session(stage, until_decided(tmp_path, "-" * 60)))
    while stage.ledger.state() is not RunState.JUDGED:
        await asyncio.sleep(0.02)
    working.cancel()
    await asyncio.wait({working})
    others.publishing = True
    plan = stage.ledger.plan()
    assert plan is not None and len(plan.samples()) < 60
    source = await session(stage, None, plan)
    assert source.asked == []
    assert stage.ledger.state() is RunState.COMPLETE
    assert stage.redis.hlen(RunKeys(stage.identity.run).completions) == len(plan.samples())


async def test_an_undecided_run_uses_all_problems(
    stage: Stage, others: Others, tmp_path: Path
) -> None:
    judging(others, FinalStatus.SUCCESS)
    await session(stage, until_decided(tmp_path, "+" * 60))
    meta = stage.ledger.meta()
    assert meta is not None and meta.stopped is None
    assert len(stage.ledger.judged()) == 60


async def test_a_run_that_is_not_comparable_is_refused(
    stage: Stage, others: Others, tmp_path: Path
) -> None:
    changed = until_decided(tmp_path, "-" * 60, **{"config.sandbox.timeout": 99.0})
    with pytest.raises(ExceptionGroup) as refused:
        await session(stage, changed)
    assert refused.group_contains(ConfigError, match=r"sandbox\.timeout")


def test_a_baseline_is_finished_and_has_all_problems_and_sets(tmp_path: Path) -> None:
    stopped = {
        "outcome": "go", "rules": [], "policy": "p", "baseline": "a", "problems": 5, "planned": 60
    }  # fmt: skip
    for change in ({"state": "running"}, {"stopped": stopped}):
        with pytest.raises(ConfigError, match=r"cannot be the baseline"):
            until_decided(tmp_path, "-" * 60, **change)
    other = read_runs([write_run(tmp_path / "other", {"two": "+"})])[0]
    with pytest.raises(ConfigError, match=r"has the data sets two"):
        UntilDecided(NamedPolicy("p", Policy.model_validate(POLICY)), other, PLAN, 0)
    with pytest.raises(ConfigError, match=r"has other problems of one"):
        until_decided(tmp_path, "-" * 60, **{"datasets.0.sha256": "0" * 64})


def test_rules_that_need_all_problems_are_named(tmp_path: Path) -> None:
    rules = {
        "max_new_failures": 3,
        "accepted_at_1": {"min_difference": 0, "confidence": "point"},
        "error_rates": {"timeout_rate": {"max_increase": 0.1}},
        "costs": {"avg_gen_time": {"max_value": 3}},
    }
    (note,) = until_decided(tmp_path, "-" * 60, {"default": rules}).notes
    assert note.endswith("one new failures, one accepted_at_1, one avg_gen_time")
    assert until_decided(tmp_path, "-" * 60).notes == []
