"""Run loop: generation of missing completions, redelivery of lost jobs, wait for publication."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from services.runner.session import Session
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.ledger import unjudged_verdict
from shared.plan import RunPlan
from shared.run_record import RunState
from shared.schemas import Generation, SampleId, Verdict
from shared.service.logs import get_logger
from shared.statuses import FinalStatus, JudgeMethod

log = get_logger(__name__)

# Yields completions as they are finished; those that are finished at the same time, together.
Source = Callable[[list[SampleId]], AsyncGenerator[Sequence[Generation]]]


class ProgressListener(Protocol):
    """Receives the progress of a run; a sample that is judged again is reported again.

    ``resumed`` comes first, with what earlier sessions have generated and judged.
    """

    def planned(self, plan: RunPlan) -> None: ...

    def resumed(
        self, generated: Sequence[SampleId], judged: Mapping[SampleId, FinalStatus]
    ) -> None: ...

    def generated(self, sample: SampleId) -> None: ...

    def judged(self, sample: SampleId, status: FinalStatus) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunTimings:
    """Intervals of the run loop in seconds.

    ``tick``: between two renewals of the lock, and the longest wait for a verdict. ``scan``:
    between two scans for lost jobs. ``gather``: between two reads of verdicts. ``canaries``:
    longest wait for canaries after the last verdict. ``publish_timeout``: limit for writing the
    artifacts.
    """

    tick: float = 1.0
    scan: float = 2.0
    gather: float = 0.05
    canaries: float = 60.0
    publish_timeout: float = 600.0


# Between two questions whether the run is published, in seconds.
_LONGEST_PAUSE = 0.05
_STANDARD_TIMINGS = RunTimings()


class Run:
    """Generates and judges every sample of a plan. Resumes from what the ledger contains."""

    def __init__(
        self,
        config: Config,
        plan: RunPlan,
        session: Session,
        source: Source,
        progress: ProgressListener,
        hashes: Mapping[SampleId, str] | None = None,
        timings: RunTimings = _STANDARD_TIMINGS,
    ) -> None:
        """``hashes``: expected SHA-256 of completions that are known in advance.

        A stored completion with another hash is replaced.
        """
        self._timings = timings
        self._config = config
        self._session = session
        self._ledger: Ledger = session.ledger
        self._canaries = CanaryLedger.of(session.ledger)
        self._lost_rounds: set[SampleId] = set()
        self._source = source
        self._progress = progress
        self._hashes = hashes or {}
        self._samples = plan.samples()
        self._unjudged = set(self._samples)
        self._last_entry = "0"
        self._generating = True
        self._active = False

    async def complete(self) -> None:
        """Run until every sample has a verdict and the artifacts are published.

        Raises:
            OutputError: The artifacts cannot be written.
            ServiceError: No aggregator publishes the run, Redis lost completions that it had
                acknowledged, or another runner took over.
        """
        await with_watch(self._complete, self._renew_lock)

    async def _complete(self) -> None:
        missing = await asyncio.to_thread(self._reconcile)
        if self._unjudged:
            self._active = True
            async with asyncio.TaskGroup() as group:
                generating = group.create_task(self._generate(missing))
                await self._follow_verdicts()
                await generating
            self._active = False
            await asyncio.to_thread(self._session.tick)
            await asyncio.to_thread(self._ledger.finish, time.time())
        await self._wait_for_canaries()
        await asyncio.to_thread(self._ledger.set_state, RunState.JUDGED)
        await self._wait_until_published()

    def _reconcile(self) -> list[SampleId]:
        """Compare plan and ledger at the start of a session.

        Reports existing results as progress, and requeues samples whose judging failed for
        infrastructure reasons.

        Returns:
            The samples to generate: missing, failed or replaced ones.
        """
        self._last_entry = self._ledger.last_event()
        completed = self._ledger.completed()
        for sample in completed.keys() - self._unjudged:
            log.warning("sample in the ledger is not in the plan", sample=sample.key)
        regenerated = {s for s, sha in completed.items() if self._is_replaced(s, sha)}
        judged: dict[SampleId, FinalStatus] = {}
        for verdict in self._ledger.verdicts(self._samples):
            if verdict.sample in regenerated:
                continue
            if verdict.judged:
                self._unjudged.discard(verdict.sample)
                judged[verdict.sample] = verdict.final_status
            elif verdict.method is JudgeMethod.NONE and self._generation_failed(verdict.sample):
                regenerated.add(verdict.sample)
            else:
                self._ledger.rejudge(verdict.sample, verdict.completion_sha256)
        kept = [s for s in self._samples if s in completed and s not in regenerated]
        self._progress.resumed(kept, judged)
        return [s for s in self._samples if s not in completed or s in regenerated]

    def _is_replaced(self, sample: SampleId, completion_sha256: str) -> bool:
        return self._hashes.get(sample, completion_sha256) != completion_sha256

    def _generation_failed(self, sample: SampleId) -> bool:
        generation = self._ledger.completion(sample)
        return generation is None or generation.error is not None

    async def _generate(self, missing: list[SampleId]) -> None:
        async with aclosing(self._source(missing)) as generations:
            async for finished in generations:
                await asyncio.to_thread(
                    self._ledger.record_all, [(one, _unjudged(one)) for one in finished]
                )
                for generation in finished:
                    self._progress.generated(generation.sample)
        self._generating = False

    async def _follow_verdicts(self) -> None:
        """Read the stream of verdicts, and scan for lost jobs and completions in between."""
        suspects: set[SampleId] = set()
        scanned = time.monotonic()
        while await self._has_pending():
            events = await asyncio.to_thread(
                self._ledger.events, self._last_entry, self._timings.tick
            )
            for event in events:
                self._last_entry = event.entry
                self._unjudged.discard(event.sample)
                self._progress.judged(event.sample, event.status)
            if time.monotonic() - scanned >= self._timings.scan:
                await asyncio.to_thread(self._check_lost_run)
                suspects = await asyncio.to_thread(
                    self._ledger.requeue_lost, suspects, self._config.judge.max_deliveries
                )
                await asyncio.to_thread(self._redeliver_canaries)
                if not self._generating:
                    await asyncio.to_thread(self._check_lost_completions)
                scanned = time.monotonic()
            if events and self._unjudged:
                await asyncio.sleep(self._timings.gather)  # read verdicts by many, not one by one

    def _redeliver_canaries(self) -> None:
        self._lost_rounds = self._canaries.requeue_lost(
            self._lost_rounds, self._config.judge.max_deliveries
        )

    async def _wait_for_canaries(self) -> None:
        """Wait until those that were sent are judged; the record counts the rest as lost."""
        end = time.monotonic() + self._timings.canaries
        scanned = time.monotonic()
        while await asyncio.to_thread(self._canaries.outstanding):
            if time.monotonic() > end:
                self._progress.note("canaries are still being judged; the run ends without them")
                return
            if time.monotonic() - scanned >= self._timings.scan:
                await asyncio.to_thread(self._redeliver_canaries)
                scanned = time.monotonic()
            await asyncio.sleep(_LONGEST_PAUSE)

    def _check_lost_run(self) -> None:
        if self._ledger.state() is None:
            raise ServiceError(
                "Redis lost the meta data of this run, which it had acknowledged (did its machine "
                "crash?); repeat the command to go on with what is left"
            )

    def _check_lost_completions(self) -> None:
        if self._ledger.completed_count() >= len(self._samples):
            return
        lost = set(self._samples) - self._ledger.completed().keys()
        if lost:
            raise ServiceError(
                f"Redis lost {len(lost)} completions that it had acknowledged (did its machine "
                "crash?); repeat the command to generate them again"
            )

    async def _has_pending(self) -> bool:
        """Whether a completion or a verdict is still missing, as confirmed by the ledger.

        Events alone do not suffice: the verdict of an event is deleted if its completion has been
        replaced since.
        """
        if self._generating:
            return True
        if not self._unjudged:
            judged = await asyncio.to_thread(self._ledger.judged)
            self._unjudged = {sample for sample in self._samples if sample not in judged}
        return bool(self._unjudged)

    async def _renew_lock(self) -> None:
        while True:
            # Waiting for the aggregator is not part of the run's active time.
            await asyncio.to_thread(self._session.tick if self._active else self._session.renew)
            await asyncio.sleep(self._timings.tick)

    async def _wait_until_published(self) -> None:
        deadline = time.monotonic() + self._timings.publish_timeout
        pause = 0.005
        while True:
            state = await asyncio.to_thread(self._ledger.state)
            if state is not None and state.published:
                return
            if state is RunState.FAILED:
                meta = await asyncio.to_thread(self._ledger.meta)
                raise OutputError(str(meta and meta.publish_error))
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"no aggregator wrote the artifacts within {self._timings.publish_timeout:g} "
                    "s; start one and repeat the command, no work is lost"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _unjudged(generation: Generation) -> Verdict | None:
    """The verdict of a sample whose generation failed; None for a completion to judge."""
    if generation.error is None:
        return None
    return unjudged_verdict(generation.sample, generation.completion_sha256, generation.error)


async def with_watch(
    work: Callable[[], Awaitable[None]], watch: Callable[[], Awaitable[None]]
) -> None:
    """Run ``work`` until it ends, or until ``watch`` raises."""
    working, watching = asyncio.ensure_future(work()), asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
