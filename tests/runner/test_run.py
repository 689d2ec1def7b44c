import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from redis import Redis

from services.runner.run import Run
from services.runner.session import Session, identify
from shared.artifacts import OutputFolder
from shared.canaries import CanaryReport
from shared.config import Config, load_config
from shared.errors import OutputError
from shared.ledger import Ledger, connect
from shared.ledger.keys import RunKeys
from shared.ledger.ledger import unjudged_verdict
from shared.run_record import Provenance, RunnerReport, RunPlan, RunState, make_plan
from shared.schemas import Generation, SampleId, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, problem, verdict
from tests.waiting import eventually

PROBLEMS = [problem(f"p{i}") for i in range(6)]
PLAN = make_plan(PROBLEMS, lambda _problem: range(2))
SAMPLES = PLAN.samples()
ONE = make_plan(PROBLEMS[:1], lambda _problem: range(1))

_ENTRY = {"sample": "d1/other/0", "status": "success", "accepted": 1}

Verdicts = Callable[[Generation], Verdict]


class FakeSource:
    """Gives every sample the completion that ``text`` says."""

    def __init__(self, text: str = "answer", **fields: object) -> None:
        self.text = text
        self.fields = fields
        self.asked: list[list[SampleId]] = []

    async def __call__(self, owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        self.asked.append(list(owed))
        for sample in owed:
            await asyncio.sleep(0)
            yield [generation(sample, self.text, **self.fields)]


class FakeProgress:
    def __init__(self) -> None:
        self.made: list[SampleId] = []
        self.statuses: dict[SampleId, FinalStatus] = {}
        self.known: int | None = None
        self.notes: list[str] = []

    def resumed(
        self, generated: Sequence[SampleId], judged: Mapping[SampleId, FinalStatus]
    ) -> None:
        self.made += generated
        self.statuses |= judged
        self.known = len(judged)

    def generated(self, sample: SampleId) -> None:
        self.made.append(sample)

    def judged(self, sample: SampleId, status: FinalStatus) -> None:
        self.statuses[sample] = status

    def note(self, text: str) -> None:
        self.notes.append(text)

    def report(self) -> RunnerReport:
        return RunnerReport(at=time.time(), seconds_left=7.0)


class Others:
    """A judge worker and an aggregator, on a thread."""

    def __init__(self, url: str, run: str, *, judging: bool) -> None:
        self.judge: Verdicts = verdict
        self.judging = threading.Event()
        if judging:
            self.judging.set()
        self.publishing = True
        self.judged: list[SampleId] = []
        self._redis = connect(url)
        self._ledger = Ledger(self._redis, run)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def _work(self) -> None:
        while not self._stop.is_set():
            if self.publishing and self._ledger.state() is RunState.JUDGED:
                self._ledger.set_state(RunState.COMPLETE)
            if not self.judging.is_set():
                self._stop.wait(0.01)
                continue
            popped = self._redis.blpop([self._ledger.queue.key], timeout=0.02)
            if popped is not None:
                self._judge(popped[1].decode())

    def _judge(self, job_id: str) -> None:
        for sample, sha256 in self._ledger.queue.fetch_job(job_id).batch.completions:
            completion = self._ledger.completion(sample)
            assert completion is not None
            judged = self._ledger.verdict(sample) is not None
            if completion.completion_sha256 == sha256 and not judged:
                self.judged.append(sample)
                self._ledger.record_verdict(self.judge(completion))


class Stage:
    """A run in its output folder, which several sessions may work on."""

    def __init__(self, redis: Redis, folder: OutputFolder, plan: RunPlan = PLAN) -> None:
        self.redis = redis
        self.folder = folder
        self.plan = plan
        self.identity = identify(Config(), plan, folder, "")
        self.ledger = Ledger(redis, self.identity.run)
        self.progress = FakeProgress()

    async def complete(
        self,
        source: FakeSource | Callable[[list[SampleId]], AsyncGenerator[list[Generation]]],
        *overrides: str,
    ) -> None:
        """One session, as a command makes it."""
        config = load_config(None, overrides)
        session = Session(self.redis, self.identity)
        session.enter(config, PROBLEMS, self.folder, force=False, provenance=Provenance())
        self.progress = FakeProgress()
        try:
            run = Run(self.plan, session, source, self.progress, tick=0.05)
            await run.complete()
        finally:
            session.leave()


@pytest.fixture
def stage(redis: Redis, tmp_path: Path) -> Stage:
    return Stage(redis, OutputFolder(str(tmp_path)))


@pytest.fixture
def one(redis: Redis, tmp_path: Path) -> Stage:
    """A run of one sample."""
    return Stage(redis, OutputFolder(str(tmp_path)), ONE)


@pytest.fixture
def others(
    redis: Redis, redis_server: RedisServer, request: pytest.FixtureRequest
) -> Iterator[Others]:
    """Judging from the start, unless the test uses the fixture ``paused``."""
    stage = request.getfixturevalue("one" if "one" in request.fixturenames else "stage")
    paused = "paused" in request.fixturenames
    working = Others(redis_server.url, stage.identity.run, judging=not paused)
    yield working
    working.stop()


@pytest.fixture
def paused() -> None:
    """Nothing is judged until the test says so."""


async def test_a_run_is_completed(stage: Stage, others: Others) -> None:
    source = FakeSource()
    await stage.complete(source)
    assert source.asked == [SAMPLES]
    assert stage.ledger.judged() == set(SAMPLES)
    assert sorted(others.judged) == sorted(SAMPLES)
    assert sorted(stage.progress.made) == sorted(SAMPLES)
    assert stage.progress.statuses == dict.fromkeys(SAMPLES, FinalStatus.SUCCESS)
    assert stage.ledger.state() is RunState.COMPLETE
    meta = stage.ledger.meta()
    assert (meta.completions_written, meta.verdicts_written) == (12, 12)
    assert meta.finished_at >= meta.started_at
    assert meta.active_seconds > 0


async def test_a_run_waits_for_its_canaries(stage: Stage, others: Others) -> None:
    rounds = RunKeys(stage.identity.run).canaries
    stage.redis.hset(rounds, "http://a batch python programs first", time.time())
    running = asyncio.create_task(stage.complete(FakeSource()))
    await eventually(lambda: len(stage.ledger.judged()) == len(SAMPLES))
    await asyncio.wait([running], timeout=0.3)
    assert not running.done()
    report = CanaryReport(sandbox="http://a", profile="x", at=1, seconds=1, sent=6)
    stage.redis.hset(rounds, "http://a batch python programs first", report.model_dump_json())
    await running


async def test_generating_and_judging_overlap(stage: Stage, others: Others) -> None:
    """The last completions come when the first verdict is there, and not before."""
    judged = asyncio.Event()
    loop = asyncio.get_running_loop()

    def judge(completion: Generation) -> Verdict:
        loop.call_soon_threadsafe(judged.set)
        return verdict(completion)

    async def source(owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        yield [generation(owed[0])]
        await judged.wait()
        for sample in owed[1:]:
            yield [generation(sample)]

    others.judge = judge
    await asyncio.wait_for(stage.complete(source), 30)
    assert stage.ledger.judged() == set(SAMPLES)


@pytest.mark.usefixtures("paused")
async def test_a_run_that_was_cut_off_generates_what_is_owed(stage: Stage, others: Others) -> None:
    async def cut_off(owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        for sample in owed[:5]:
            yield [generation(sample, "first")]
        raise RuntimeError("cut off")

    with pytest.raises(ExceptionGroup):
        await stage.complete(cut_off)
    assert len(stage.ledger.completed()) == 5
    stage.ledger.record_verdict(verdict(generation(SAMPLES[0], "first")))
    others.judging.set()
    source = FakeSource("second")
    await stage.complete(source)
    assert source.asked == [SAMPLES[5:]]
    texts = [g.completion for g in stage.ledger.completions(SAMPLES)]
    assert texts == ["first"] * 5 + ["second"] * 7
    assert sorted(stage.progress.statuses) == sorted(SAMPLES)
    assert SAMPLES[0] not in others.judged
    assert sorted(others.judged) == sorted(SAMPLES[1:])
    assert stage.ledger.meta().duplicate_verdicts == 0


async def test_a_finished_run_is_published_again_and_nothing_else(
    stage: Stage, others: Others
) -> None:
    await stage.complete(FakeSource())
    before = stage.ledger.meta()
    source = FakeSource()
    await stage.complete(source)
    assert source.asked == []
    assert stage.progress.known == len(SAMPLES)  # no part of this session's rate
    assert len(others.judged) == 12
    assert stage.progress.statuses == dict.fromkeys(SAMPLES, FinalStatus.SUCCESS)
    assert stage.ledger.state() is RunState.COMPLETE
    meta = stage.ledger.meta()
    assert meta.completions_written == before.completions_written
    assert meta.verdicts_written == before.verdicts_written
    assert meta.sessions == 2


async def test_what_infrastructure_failed_is_judged_again_next_time(
    stage: Stage, others: Others
) -> None:
    unlucky = SAMPLES[3]

    def fail_one(completion: Generation) -> Verdict:
        if completion.sample == unlucky:
            return unjudged_verdict(unlucky, completion.completion_sha256, "sandbox: http_503")
        return verdict(completion)

    others.judge = fail_one
    await stage.complete(FakeSource())
    assert stage.progress.statuses[unlucky] is FinalStatus.API_ERROR
    others.judge = verdict
    source = FakeSource("another")
    await stage.complete(source)
    assert source.asked in ([], [[]])
    assert len(others.judged) == 13
    assert others.judged[-1] == unlucky
    assert stage.progress.statuses == dict.fromkeys(SAMPLES, FinalStatus.SUCCESS)
    assert stage.ledger.completion(unlucky) == generation(unlucky, "answer")


async def test_a_failed_generation_is_tried_again_next_time(stage: Stage, others: Others) -> None:
    await stage.complete(FakeSource("", error="timeout"))
    source = FakeSource()
    await stage.complete(source)
    assert source.asked == [SAMPLES]
    assert stage.progress.statuses == dict.fromkeys(SAMPLES, FinalStatus.SUCCESS)
    assert sorted(others.judged) == sorted(SAMPLES)


@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize("lost", ["*", "*:meta"])
async def test_a_run_that_redis_forgot_ends_and_says_so(
    one: Stage, others: Others, redis: Redis, lost: str
) -> None:
    running = asyncio.create_task(one.complete(FakeSource()))
    await eventually(lambda: one.progress.made)
    redis.delete(*redis.keys(lost))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(running, 30)
    assert "Redis lost the run" in str(caught.value.exceptions[0])


async def test_a_loss_after_the_last_verdict_is_made_good(
    one: Stage, others: Others, redis: Redis
) -> None:
    """The state and the last verdict are taken back before the artifacts are written."""
    others.publishing = False
    running = asyncio.create_task(one.complete(FakeSource()))
    await eventually(lambda: one.ledger.state() is RunState.JUDGED)
    one.ledger.set_state(RunState.RUNNING)
    redis.delete(*redis.keys("*:verdicts"), *redis.keys("*:events"))
    await eventually(lambda: one.progress.notes)
    others.publishing = True
    await running
    assert "0 completions and 1 verdicts" in one.progress.notes[0]
    assert len(others.judged) == 2
    assert one.ledger.judged() == set(ONE.samples())


@pytest.mark.usefixtures("paused")
async def test_verdicts_of_a_server_whose_clock_is_behind_are_found(
    stage: Stage, others: Others, redis: Redis
) -> None:
    """After a failover the entries of the stream are before those that the run has read."""
    redis.xadd(RunKeys(stage.identity.run).events, _ENTRY, id=f"{10**14}-0")
    running = asyncio.create_task(stage.complete(FakeSource()))
    await eventually(lambda: len(stage.progress.made) == len(SAMPLES))
    redis.delete(RunKeys(stage.identity.run).events)
    others.judging.set()
    async with asyncio.timeout(20):
        await running
    assert stage.ledger.judged() == set(SAMPLES)


async def test_artifacts_that_cannot_be_written_end_the_run(one: Stage, others: Others) -> None:
    others.publishing = False

    async def fail() -> None:
        await eventually(lambda: one.ledger.state() is RunState.JUDGED)
        one.ledger.fail("no space left")

    failing = asyncio.create_task(fail())
    with pytest.raises(OutputError, match="no space left"):
        await one.complete(FakeSource())
    await failing
