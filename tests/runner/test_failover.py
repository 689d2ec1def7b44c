"""A run whose Redis fails over to its replica: what the replica did not have is made again."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from shared.artifacts import OutputFolder
from shared.ledger import connect
from shared.run_record import RunState
from shared.schemas import Generation, SampleId
from tests.runner.test_run import PLAN, SAMPLES, Others, Stage
from tests.sentinels import Sentinels, sentinels
from tests.shared.ledgers import generation


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with sentinels(tmp_path_factory.mktemp("servers")) as started:
        yield started


class SlowSource:
    """Gives the third and the last quarter of the completions when the test says so."""

    def __init__(self) -> None:
        self.half, self.rest = asyncio.Event(), asyncio.Event()
        self.asked: list[list[SampleId]] = []

    async def __call__(self, owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        self.asked.append(list(owed))
        for number, sample in enumerate(owed):
            if number == len(SAMPLES) // 2:
                await self.half.wait()
            if number == len(SAMPLES) * 3 // 4:
                await self.rest.wait()
            yield [generation(sample, f"answer {len(self.asked)}")]


@pytest.mark.parametrize("lossy", [False, True], ids=["replicated", "lost"])
async def test_a_run_survives_the_loss_of_its_master(
    servers: Sentinels, tmp_path: Path, lossy: bool
) -> None:
    servers.until_replicated()
    redis = connect(servers.url)
    stage = Stage(redis, OutputFolder(str(tmp_path / "output")))
    source = SlowSource()
    others = Others(servers.url, stage.identity.run, judging=True)
    running = asyncio.create_task(stage.complete(source))
    try:
        while len(stage.progress.statuses) < 6:
            await asyncio.sleep(0.01)
        if lossy:
            await asyncio.to_thread(servers.cut_off_replica)
            source.half.set()
            while len(stage.progress.statuses) < 9:  # acknowledged, and only by the master
                await asyncio.sleep(0.01)
        killed = await asyncio.to_thread(servers.fail_over)
        source.half.set()
        source.rest.set()  # a run that is over already loses what its master alone had
        killed.start()
        await running
    finally:
        others.stop()
    assert stage.ledger.judged() == set(SAMPLES)
    assert {completion.sample for completion in stage.ledger.completions(SAMPLES)} == set(SAMPLES)
    assert stage.ledger.state() is RunState.COMPLETE
    meta = stage.ledger.meta()
    assert meta is not None
    assert (meta.completions_written, meta.verdicts_written) == (len(SAMPLES), len(SAMPLES))
    if lossy:
        assert 1 <= len(source.asked[1]) <= 6
        assert stage.progress.notes[0].startswith("Redis lost")
        assert f"{len(source.asked[1])} completions" in stage.progress.notes[0]
    else:
        assert source.asked == [PLAN.samples()]
    redis.close()
