"""The way of a run: generate what is owed, wait for verdicts, have the artifacts written."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from services.runner.progress import Progress
from services.runner.session import Session
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger, RunState
from shared.ledger.ledger import unjudged_verdict
from shared.plan import RunPlan
from shared.schemas import Generation, SampleId
from shared.service.logs import get_logger

log = get_logger(__name__)

Source = Callable[[list[SampleId]], AsyncGenerator[Generation]]
_TICK = 1.0
_SCAN = 2.0
_PUBLISH_TIMEOUT = 600.0


class Run:
    """Brings every sample of a plan to a verdict. Whatever the ledger has already, stays."""

    def __init__(
        self,
        config: Config,
        plan: RunPlan,
        session: Session,
        source: Source,
        progress: Progress,
        hashes: Mapping[SampleId, str] | None = None,
    ) -> None:
        """``hashes``: SHA-256 of completions as they have to be, where that is known before."""
        self._config = config
        self._session = session
        self._ledger: Ledger = session.ledger
        self._source = source
        self._progress = progress
        self._hashes = hashes or {}
        self._samples = plan.samples()
        self._unjudged = set(self._samples)
        self._after = "0"
        self._generating = True

    async def complete(self) -> None:
        """Work until nothing is owed and the artifacts are there.

        Raises:
            OutputError: The artifacts cannot be written.
            ServiceError: Nobody publishes, or Redis forgot what it had acknowledged.
        """
        owed = await asyncio.to_thread(self._take_stock)
        if self._unjudged:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick())
                generating = group.create_task(self._generate(owed))
                await self._collect()
                await generating
                ticking.cancel()
            await asyncio.to_thread(self._session.tick)
            await asyncio.to_thread(self._ledger.set_meta, finished_at=time.time())
        await asyncio.to_thread(self._ledger.set_meta, state=RunState.JUDGED)
        await self._published()

    def _take_stock(self) -> list[SampleId]:
        """Tell what is there; queue again what infrastructure failed; return what to generate."""
        self._after = self._ledger.last_event()
        completed = self._ledger.completed()
        for sample in completed.keys() - self._unjudged:
            log.warning("the ledger holds a sample that is not planned", sample=sample.key)
        again = {s for s, sha in completed.items() if self._replaced(s, sha)}
        for verdict in self._ledger.verdicts(self._samples):
            if verdict.sample in again:
                continue
            if verdict.judged:
                self._unjudged.discard(verdict.sample)
                self._progress.judged(verdict.sample, verdict.final_status)
            elif verdict.method == "none" and self._generation_failed(verdict.sample):
                again.add(verdict.sample)
            else:
                self._ledger.rejudge(verdict.sample, verdict.completion_sha256)
        owed = [s for s in self._samples if s not in completed or s in again]
        for sample in completed.keys() - again:
            self._progress.generated(sample)
        return owed

    def _replaced(self, sample: SampleId, completion_sha256: str) -> bool:
        return self._hashes.get(sample, completion_sha256) != completion_sha256

    def _generation_failed(self, sample: SampleId) -> bool:
        generation = self._ledger.completion(sample)
        return generation is None or generation.error is not None

    async def _generate(self, owed: list[SampleId]) -> None:
        async with aclosing(self._source(owed)) as generations:
            async for generation in generations:
                await asyncio.to_thread(self._record, generation)
                self._progress.generated(generation.sample)
        self._generating = False

    def _record(self, generation: Generation) -> None:
        unjudged = None
        if generation.error is not None:
            unjudged = unjudged_verdict(
                generation.sample, generation.completion_sha256, generation.error
            )
        self._ledger.record(generation, unjudged)

    async def _collect(self) -> None:
        """Follow the stream of verdicts, and look for jobs and completions that got lost."""
        suspects: set[SampleId] = set()
        scanned = time.monotonic()
        while await self._owing():
            for event in await asyncio.to_thread(self._ledger.events, self._after, _TICK):
                self._after = event.entry
                self._unjudged.discard(event.sample)
                self._progress.judged(event.sample, event.status)
            if time.monotonic() - scanned >= _SCAN:
                suspects = await asyncio.to_thread(
                    self._ledger.requeue_lost, suspects, self._config.judge.max_deliveries
                )
                if not self._generating:
                    await asyncio.to_thread(self._check_completions)
                scanned = time.monotonic()

    def _check_completions(self) -> None:
        lost = set(self._samples) - self._ledger.completed().keys()
        if lost:
            raise ServiceError(
                f"Redis lost {len(lost)} completions that it had acknowledged (a crash of its "
                "machine?); the same command generates them again"
            )

    async def _owing(self) -> bool:
        """Whether a completion or a verdict is to come; the ledger has the last word on that.

        An event may tell of a verdict that went away meanwhile, with the completion that it was on.
        """
        if self._generating:
            return True
        if not self._unjudged:
            judged = await asyncio.to_thread(self._ledger.judged)
            self._unjudged = {sample for sample in self._samples if sample not in judged}
        return bool(self._unjudged)

    async def _tick(self) -> None:
        while True:
            await asyncio.to_thread(self._session.tick)
            await asyncio.sleep(_TICK)

    async def _published(self) -> None:
        give_up = time.monotonic() + _PUBLISH_TIMEOUT
        while (state := await asyncio.to_thread(self._ledger.state)) is not RunState.PUBLISHED:
            if state is RunState.FAILED:
                raise OutputError(str(self._ledger.meta().get("publish_error")))
            if time.monotonic() > give_up:
                raise ServiceError(
                    f"no aggregator wrote the artifacts within {_PUBLISH_TIMEOUT:.0f} s; "
                    "start one and run the same command again, no work is lost"
                )
            await asyncio.sleep(0.05)
