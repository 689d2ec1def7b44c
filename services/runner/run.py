"""Run loop: generation of missing completions, redelivery of lost jobs, wait for publication."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from services.runner.session import Session
from shared.errors import OutputError, ServiceError
from shared.ledger import CanaryLedger
from shared.ledger.sentinel import is_behind_sentinel
from shared.run_record import OutageReport, RunnerReport, RunPlan, RunState
from shared.schemas import Generation, SampleId
from shared.service.processes import with_watch
from shared.statuses import FinalStatus

if TYPE_CHECKING:
    from services.runner.until_decided import UntilDecided

# Yields completions as they are finished; those that are finished at the same time, together.
Source = Callable[[list[SampleId]], AsyncGenerator[Sequence[Generation]]]

# Seconds between two reads of verdicts, to read them by many, not singly.
_GATHER = 0.05
# Seconds for writing the artifacts, those for each sample, and until the first note about it.
_PUBLISH, _PUBLISH_EACH, _PUBLISH_NOTE = 600.0, 0.002, 20.0
_PAUSE = 0.05  # seconds between two looks at the run's state
# Seconds in which sentinels make a former master a replica: 8, and up to 10 until they look at it.
_DEMOTION = 20.0


class ProgressListener(Protocol):
    """Receives the progress of a run; a sample that is judged again is reported again.

    ``resumed`` comes first, with the samples that earlier sessions have generated and judged;
    ``waits`` comes every second, with the outages.
    """

    def resumed(
        self, generated: Sequence[SampleId], judged: Mapping[SampleId, FinalStatus]
    ) -> None: ...

    def generated(self, sample: SampleId) -> None: ...

    def judged(self, sample: SampleId, status: FinalStatus) -> None: ...

    def note(self, text: str) -> None: ...

    def waits(self, outages: Sequence[OutageReport]) -> None: ...

    def report(self) -> RunnerReport: ...


class Run:
    """Generates and judges every sample of a plan. Resumes from what the ledger contains.

    ``tick`` is the seconds between two renewals of the lock, and the longest wait for a verdict.
    """

    def __init__(
        self,
        plan: RunPlan,
        session: Session,
        source: Source,
        progress: ProgressListener,
        early_stop: "UntilDecided | None" = None,
        tick: float = 1.0,
    ) -> None:
        self._session = session
        self._ledger = session.ledger
        self._source = source
        self._progress = progress
        self._early_stop = early_stop
        self._tick = tick
        self._samples = plan.samples()
        self._ungenerated: set[SampleId] = set()
        self._unjudged = set(self._samples)
        self._last_entry = "0"
        self._incarnation: str | None = None
        self._generation: asyncio.Task[None] | None = None
        self._recording = asyncio.Lock()
        self._active = False

    @property
    def ungenerated(self) -> int:
        """Samples without a completion."""
        return len(self._ungenerated)

    @property
    def unjudged(self) -> int:
        """Completions without a verdict."""
        return len(self._unjudged) - len(self._ungenerated)

    async def complete(self) -> None:
        """Run until every sample has a verdict and the artifacts are published.

        Raises:
            OutputError: The artifacts cannot be written.
            ServiceError: No aggregator publishes the run, Redis lost the whole run, or another
                runner took over.
        """
        await with_watch(self._complete, self._renew_lock)

    async def _complete(self) -> None:
        missing = await asyncio.to_thread(self._resume)
        # Rounds of canaries that were started; those of killed judges are lost.
        outstanding = CanaryLedger(self._ledger.redis, self._ledger.run).outstanding
        while True:
            if self._unjudged:
                self._active = True
                async with asyncio.TaskGroup() as group:
                    self._start_generating(group, missing)
                    await self._follow_verdicts(group)
                self._active = False
                await asyncio.to_thread(self._session.tick)
                await asyncio.to_thread(self._ledger.finish, time.time())
            while await asyncio.to_thread(outstanding):  # noqa: ASYNC110 - Redis sends no event
                await asyncio.sleep(_PAUSE)
            await asyncio.to_thread(self._ledger.set_state, RunState.JUDGED)
            if await self._wait_until_published():
                return
            missing = await asyncio.to_thread(self._compare)

    async def _renew_lock(self) -> None:
        while True:
            # Waiting for the aggregator is not part of the run's active time.
            active = self._active
            await asyncio.to_thread(self._session.tick, active=active)
            if active:
                await asyncio.to_thread(self._ledger.report, self._progress.report())
            await asyncio.sleep(self._tick)

    def _resume(self) -> list[SampleId]:
        """Compare plan and ledger at the start of a session.

        Reports existing results as progress, and requeues samples whose judging failed for
        infrastructure reasons. Returns the samples to generate, which are missing or failed.
        """
        self._last_entry = self._ledger.last_event()
        self._incarnation = self._ledger.incarnation()
        missing = self._unjudged - self._ledger.completed().keys()
        judged: dict[SampleId, FinalStatus] = {}
        failed: dict[SampleId, str] = {}
        for verdict in self._ledger.verdicts(self._samples):
            if verdict.judged:
                judged[verdict.sample] = verdict.final_status
            else:
                failed[verdict.sample] = verdict.completion_sha256
        answered = {g.sample for g in self._ledger.completions(list(failed)) if g.error is None}
        self._ledger.rejudge([(sample, failed[sample]) for sample in answered])
        missing |= failed.keys() - answered
        self._unjudged -= judged.keys()
        self._progress.resumed([s for s in self._samples if s not in missing], judged)
        return [s for s in self._samples if s in missing]

    def _start_generating(self, group: asyncio.TaskGroup, missing: Sequence[SampleId]) -> None:
        self._ungenerated = set(missing)
        ordered = self._early_stop.in_order(missing) if self._early_stop else list(missing)
        self._generation = group.create_task(self._generate(ordered))

    async def _generate(self, missing: list[SampleId]) -> None:
        async with aclosing(self._source(missing)) as generations:
            async for finished in generations:
                async with self._recording:
                    await asyncio.to_thread(self._ledger.record, *finished)
                for generation in finished:
                    self._ungenerated.discard(generation.sample)
                    self._progress.generated(generation.sample)
        self._ungenerated = set()

    async def _follow_verdicts(self, group: asyncio.TaskGroup) -> None:
        """Read the stream of verdicts, and scan for lost jobs and records in between.

        Events alone do not suffice: Redis may lose a verdict after its event was read, and the
        clock of a new master may be behind, so that its entries are before the last one read.
        """
        suspects: set[SampleId] = set()
        scanned, lost = time.monotonic(), False
        while True:
            generating = self._generation is not None and not self._generation.done()
            if not generating and (lost or not self._unjudged):
                if missing := await asyncio.to_thread(self._compare):
                    self._start_generating(group, missing)
                elif not self._unjudged:
                    return
            events = await asyncio.to_thread(self._ledger.events, self._last_entry, self._tick)
            for event in events:
                self._last_entry = event.entry
                self._judged(event.sample, event.status)
            if self._early_stop and await self._stop_early(self._early_stop):
                return
            lost = False
            if time.monotonic() - scanned >= 2 * self._tick:
                await asyncio.to_thread(self._check_lost_run)
                suspects = await asyncio.to_thread(self._ledger.requeue_lost, suspects)
                lost = not events and await asyncio.to_thread(self._has_lost_records)
                scanned = time.monotonic()
            if events and self._unjudged:
                await asyncio.sleep(_GATHER)

    async def _stop_early(self, early_stop: "UntilDecided") -> bool:
        """Cancel the requests in flight and drop what they leave, if the policy is decided."""
        unjudged = self._unjudged | self._ungenerated
        decided = await asyncio.to_thread(early_stop.decide, self._ledger, unjudged)
        if decided is None:
            return False
        plan, stopped = decided
        if self._generation is not None:
            async with self._recording:  # a thread that writes to the ledger cannot be cancelled
                self._generation.cancel()
            await asyncio.wait({self._generation})
        await asyncio.to_thread(self._ledger.stop_early, plan, stopped)
        self._incarnation = await asyncio.to_thread(self._ledger.incarnation)
        self._progress.note(stopped.described)
        self._samples, self._early_stop = plan.samples(), None
        self._ungenerated, self._unjudged = set(), set()
        return True

    def _judged(self, sample: SampleId, status: FinalStatus) -> None:
        self._unjudged.discard(sample)
        self._progress.judged(sample, status)

    # Losses: a failover, or a crash of Redis' machine, takes back the last writes that Redis had
    # acknowledged. Lost jobs are queued again by the ledger.

    def _has_lost_records(self) -> bool:
        """Whether completions are missing, or verdicts whose events did not arrive are there."""
        planned = len(self._samples)
        return self._ledger.completed_count() < planned or self._ledger.judged_count() >= planned

    def _compare(self) -> list[SampleId]:
        """Find the samples without a verdict in the ledger; returns those without a completion."""
        self._check_lost_run()
        completed, judged = self._ledger.completed(), self._ledger.judged()
        for verdict in self._ledger.verdicts([s for s in self._unjudged if s in judged]):
            self._judged(verdict.sample, verdict.final_status)
        missing = [sample for sample in self._samples if sample not in completed]
        unjudged = {*missing, *(s for s in self._samples if s not in judged)}
        if missing or unjudged - self._unjudged:
            self._progress.note(
                f"Redis lost {len(missing)} completions and {len(unjudged - self._unjudged)} "
                "verdicts that it had acknowledged (a failover, or a crash of its machine); they "
                "are made again"
            )
        self._unjudged = unjudged
        return missing

    def _check_lost_run(self) -> None:
        """Check that Redis has the run; behind Sentinel again and again for a while.

        A former master that returns is a master, without the latest writes or even empty, until
        the sentinels make it a replica.
        """
        redis = self._ledger.redis
        deadline = time.monotonic() + (_DEMOTION if is_behind_sentinel(redis) else 0.0)
        while self._ledger.incarnation() != self._incarnation:
            if time.monotonic() >= deadline:
                raise ServiceError(
                    "Redis lost the run that it had acknowledged (did its machine crash, or was it "
                    "emptied?); restore its data, or use --force to start over"
                )
            time.sleep(_PAUSE)

    async def _wait_until_published(self) -> bool:
        """Wait for the artifacts; False if the run is no longer judged, because Redis lost that."""
        began, noted = time.monotonic(), False
        limit = _PUBLISH + _PUBLISH_EACH * len(self._samples)
        while True:
            state = await asyncio.to_thread(self._ledger.state)
            if state is not None and state.published:
                return True
            if state is None or state is RunState.RUNNING:
                return False
            if state is RunState.FAILED:
                meta = await asyncio.to_thread(self._ledger.meta)
                raise OutputError(str(meta and meta.publish_error))
            waited = time.monotonic() - began
            if waited > _PUBLISH_NOTE and not noted:
                noted = True
                self._progress.note("waiting for an aggregator to write the artifacts")
            if waited > limit:
                raise ServiceError(
                    f"no aggregator wrote the artifacts within {limit:.0f} s; start one and repeat "
                    "the command, no work is lost"
                )
            await asyncio.sleep(min(_PAUSE, waited + 0.005))
