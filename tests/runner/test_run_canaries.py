"""The end of a run, which waits for the canaries that were sent, but not for ever."""

import asyncio

from shared.config import Config
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.keys import canary_run
from shared.ledger.ledger import unjudged_verdict
from tests.conftest import RedisServer
from tests.runner.test_run import FakeSource, Others, RunTimings, Stage, one, stage

__all__ = ["one", "stage"]


def send(stage: Stage) -> None:
    canaries = CanaryLedger.of(stage.ledger)
    canaries.send("http://a", "batch python programs", Config().model_dump_json(), every=60)
    # The worker of these tests judges samples only.
    stage.redis.delete("rq:queue:judge")


def judged(stage: Stage) -> None:
    canaries = Ledger(stage.redis, canary_run(stage.identity.run))
    for sample, sha in canaries.completed().items():
        canaries.record_verdict(unjudged_verdict(sample, sha, "x"))


async def test_a_run_waits_for_its_canaries(stage: Stage, redis_server: RedisServer) -> None:
    stage.timings = RunTimings(tick=0.05, scan=30, canaries=60)
    send(stage)
    others = Others(redis_server.url, stage.identity.run, judging=True)
    try:
        running = asyncio.create_task(stage.complete(FakeSource()))
        while len(stage.ledger.judged()) < len(stage.plan.samples()):
            await asyncio.sleep(0.01)
        await asyncio.wait([running], timeout=0.5)
        assert not running.done()
        judged(stage)
        await running
    finally:
        others.stop()


async def test_a_run_does_not_wait_for_ever(stage: Stage, redis_server: RedisServer) -> None:
    stage.timings = RunTimings(tick=0.05, scan=30, canaries=0.2)
    send(stage)
    others = Others(redis_server.url, stage.identity.run, judging=True)
    try:
        await stage.complete(FakeSource())
    finally:
        others.stop()
    assert CanaryLedger.of(stage.ledger).record().lost == 1
