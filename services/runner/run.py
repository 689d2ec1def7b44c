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
from shared.ledger.segments import Mark
from shared.ledger.version import put_back_reasons
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
class RunBounds:
    """What a run may keep in Redis, in samples.

    ``archived_above``: a run with more samples moves finished ones into segments; a smaller one
    stays in Redis. ``segment``: samples that are moved together. ``in_flight``: completions that
    wait for their verdicts, before the run takes no further ones.
    """

    archived_above: int = 10_000
    segment: int = 2_000
    in_flight: int = 20_000


@dataclass(frozen=True, slots=True)
class RunTimings:
    """Intervals of the run loop in seconds.

    ``tick``: between two renewals of the lock, and the longest wait for a verdict. ``scan``:
    between two scans for lost jobs. ``gather``: between two reads of verdicts. ``canaries``:
    longest wait for canaries after the last verdict. ``publish_timeout``: limit for writing the
    artifacts of a small run; ``publish_note``: until the user is told what the run waits for.
    """

    tick: float = 1.0
    scan: float = 2.0
    gather: float = 0.05
    canaries: float = 60.0
    publish_timeout: float = 600.0
    publish_note: float = 20.0


# Between two questions whether the run is published, in seconds.
_LONGEST_PAUSE = 0.05
# Seconds that writing the artifacts of a sample may take beyond that.
_PUBLISH_EACH = 0.002
_STANDARD_TIMINGS = RunTimings()
_STANDARD_BOUNDS = RunBounds()


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
        bounds: RunBounds = _STANDARD_BOUNDS,
    ) -> None:
        """``hashes``: expected SHA-256 of completions that are known in advance.

        A stored completion with another hash is replaced.
        """
        self._timings = timings
        self._bounds = bounds
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
        # Samples with a completion and no verdict yet.
        self._in_flight = 0
        self._fewer_in_flight = asyncio.Event()
        self._finished: list[SampleId] = []  # and still in Redis
        self._archiving = len(self._samples) > bounds.archived_above
        self._put_back: set[str] = set()
        self._last_entry = "0"
        self._incarnation: str | None = None
        self._generating = False
        self._active = False

    @property
    def ungenerated(self) -> int:
        """Samples without a completion."""
        return max(0, len(self._unjudged) - self._in_flight) if self._generating else 0

    @property
    def unjudged(self) -> int:
        """Completions without a verdict."""
        return min(self._in_flight, len(self._unjudged))

    async def complete(self) -> None:
        """Run until every sample has a verdict and the artifacts are published.

        Raises:
            OutputError: The artifacts cannot be written.
            ServiceError: No aggregator publishes the run, Redis lost the whole run, or another
                runner took over.
        """
        await with_watch(self._complete, self._renew_lock)

    async def _complete(self) -> None:
        missing = await asyncio.to_thread(self._reconcile)
        published = False
        while not published:
            if self._unjudged:
                await self._generate_and_judge(missing)
            await self._wait_for_canaries()
            await asyncio.to_thread(self._ledger.set_state, RunState.JUDGED)
            published = await self._wait_until_published()
            if not published:
                await asyncio.to_thread(self._check_lost_run)
                missing = await asyncio.to_thread(self._what_was_lost)

    async def _generate_and_judge(self, missing: list[SampleId]) -> None:
        self._active = True
        async with asyncio.TaskGroup() as group:
            self._start_generating(group, missing)
            await self._follow_verdicts(group)
        while await self._archive():
            pass
        self._active = False
        await asyncio.to_thread(self._session.tick)
        await asyncio.to_thread(self._ledger.finish, time.time())

    def _reconcile(self) -> list[SampleId]:
        """Compare plan and ledger at the start of a session.

        Reports existing results as progress, and requeues samples whose judging failed for
        infrastructure reasons.

        Returns:
            The samples to generate: missing, failed or replaced ones.
        """
        self._last_entry = self._ledger.last_event()
        self._incarnation = self._ledger.incarnation()
        completed = self._ledger.completed()
        for sample in completed.keys() - self._unjudged:
            log.warning("sample in the ledger is not in the plan", sample=sample.key)
        missing = self._unjudged - completed.keys()
        missing |= {s for s, sha in completed.items() if self._is_replaced(s, sha)}
        judged: dict[SampleId, FinalStatus] = {}
        for sample, found in self._ledger.standing(self._samples):
            if isinstance(found, Mark):
                if self._is_replaced(sample, found.sha256):
                    continue
                missing.discard(sample)
                judged[sample] = found.status
            elif sample in missing:
                continue
            elif found.judged:
                judged[sample] = found.final_status
                if self._archiving:
                    self._finished.append(sample)
            elif found.method is JudgeMethod.NONE and self._generation_failed(sample):
                missing.add(sample)
            else:
                self._ledger.rejudge(sample, found.completion_sha256)
        self._unjudged -= judged.keys()
        self._in_flight = len(self._unjudged) - len(missing)
        kept = [s for s in self._samples if s not in missing]
        self._progress.resumed(kept, judged)
        return [s for s in self._samples if s in missing]

    def _is_replaced(self, sample: SampleId, completion_sha256: str) -> bool:
        return self._hashes.get(sample, completion_sha256) != completion_sha256

    def _generation_failed(self, sample: SampleId) -> bool:
        generation = self._ledger.completion(sample)
        return generation is None or generation.error is not None

    def _start_generating(self, group: asyncio.TaskGroup, missing: list[SampleId]) -> None:
        self._generating = True
        group.create_task(self._generate(missing))

    async def _generate(self, missing: list[SampleId]) -> None:
        async with aclosing(self._source(missing)) as generations:
            async for finished in generations:
                await self._wait_for_judges(len(finished))
                await asyncio.to_thread(
                    self._ledger.record_all, [(one, _unjudged(one)) for one in finished]
                )
                for generation in finished:
                    self._progress.generated(generation.sample)
        self._generating = False

    async def _wait_for_judges(self, completions: int) -> None:
        """Wait until so many more may be in flight (backpressure): they are in Redis' memory."""
        while self._in_flight > self._bounds.in_flight:
            self._fewer_in_flight.clear()
            await self._fewer_in_flight.wait()
        self._in_flight += completions

    async def _follow_verdicts(self, group: asyncio.TaskGroup) -> None:
        """Read the stream of verdicts, and scan for lost jobs and completions in between."""
        suspects: set[SampleId] = set()
        scanned = time.monotonic()
        while await self._has_pending():
            events = await asyncio.to_thread(
                self._ledger.events, self._last_entry, self._timings.tick
            )
            for event in events:
                self._last_entry = event.entry
                self._judged(event.sample, event.status)
            self._fewer_in_flight.set()
            await self._archive()
            if time.monotonic() - scanned >= self._timings.scan:
                await asyncio.to_thread(self._check_lost_run)
                suspects = await asyncio.to_thread(
                    self._ledger.requeue_lost, suspects, self._config.judge.max_deliveries
                )
                await asyncio.to_thread(self._redeliver_canaries)
                # What Redis lost in a crash is in flight no longer.
                self._in_flight = await asyncio.to_thread(self._ledger.open_count)
                if not events:
                    await asyncio.to_thread(self._note_put_back)
                if not self._generating:
                    await self._make_good(group, quiet=not events)
                scanned = time.monotonic()
            if events and self._unjudged:
                await asyncio.sleep(self._timings.gather)  # read verdicts by many, not one by one

    def _judged(self, sample: SampleId, status: FinalStatus) -> None:
        if sample in self._unjudged:
            self._unjudged.discard(sample)
            self._in_flight -= 1
        if self._archiving and status is not FinalStatus.API_ERROR:
            self._finished.append(sample)
        self._progress.judged(sample, status)

    async def _archive(self) -> bool:
        """Move a segment of finished samples out of Redis, if there are enough.

        They stay in Redis if they cannot be written.

        Returns:
            Whether there may be another segment.
        """
        archive, size = self._session.archive, self._bounds.segment
        if not self._archiving or archive is None or len(self._finished) < size:
            return False
        try:
            await asyncio.to_thread(archive.move, self._finished[:size])
        except OutputError as error:
            self._archiving = False
            self._progress.note(
                f"finished samples stay in Redis until the next session, because they cannot be "
                f"written to the output folder: {error}"
            )
            return False
        del self._finished[:size]
        return True

    def _note_put_back(self) -> None:
        """Tell why judges return jobs of this run to the queue; each reason once."""
        for reason in put_back_reasons(self._ledger.redis, self._ledger.run):
            if reason not in self._put_back:
                self._put_back.add(reason)
                self._progress.note(f"a judge returns jobs of this run to the queue: {reason}")

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

    # Losses: a failover, or a crash of Redis' machine, takes back the last writes that Redis had
    # acknowledged. Lost jobs are queued again by the ledger.

    async def _make_good(self, group: asyncio.TaskGroup, *, quiet: bool) -> None:
        """Generate lost completions again, and find verdicts whose events were missed.

        ``quiet``: whether the stream had nothing new, so that no event is still on its way.
        """
        lost = await asyncio.to_thread(self._lost_completions)
        if lost:
            self._progress.note(
                f"Redis lost {len(lost)} completions that it had acknowledged (a failover, or a "
                "crash of its machine); they are generated again"
            )
            self._start_generating(group, lost)
        elif quiet and await asyncio.to_thread(self._ledger.judged_count) >= len(self._samples):
            # The clock of the new master may be behind, so that its entries are before ours.
            for sample, found in await asyncio.to_thread(self._missed_verdicts):
                self._judged(sample, found.final_status)

    def _missed_verdicts(self) -> list[tuple[SampleId, Verdict]]:
        standing = self._ledger.standing(list(self._unjudged))
        return [(sample, found) for sample, found in standing if isinstance(found, Verdict)]

    def _check_lost_run(self) -> None:
        if self._ledger.incarnation() != self._incarnation:
            raise ServiceError(
                "Redis lost the run that it had acknowledged (did its machine crash, or was it "
                "emptied?); restore its data, or use --force to start over"
            )

    def _lost_completions(self) -> list[SampleId]:
        if self._ledger.completed_count() >= len(self._samples):
            return []
        completed = self._ledger.completed()
        absent = [sample for sample in self._samples if sample not in completed]
        archived = {sample for sample, _ in self._ledger.standing(absent)}
        lost = [sample for sample in absent if sample not in archived]
        self._unjudged.update(lost)
        return lost

    def _what_was_lost(self) -> list[SampleId]:
        """Find what is owed again, after the run was judged completely.

        Returns:
            The samples to generate.
        """
        lost = self._lost_completions()
        judged = self._ledger.judged()
        self._unjudged = {sample for sample in self._samples if sample not in judged}
        self._progress.note(
            f"Redis lost the end of the run that it had acknowledged (a failover, or a crash of "
            f"its machine): {len(lost)} completions and {len(self._unjudged)} verdicts, which are "
            "made again"
        )
        return lost

    async def _has_pending(self) -> bool:
        """Whether a completion or a verdict is still missing, as confirmed by the ledger.

        Events alone do not suffice: the verdict of an event is deleted if its completion has been
        replaced since.
        """
        if self._generating:
            return True
        if not self._unjudged:
            self._unjudged = await asyncio.to_thread(self._without_verdict)
            self._in_flight = len(self._unjudged)
        return bool(self._unjudged)

    def _without_verdict(self) -> set[SampleId]:
        judged = {sample for sample, _ in self._ledger.standing(self._samples)}
        return {sample for sample in self._samples if sample not in judged}

    async def _renew_lock(self) -> None:
        while True:
            # Waiting for the aggregator is not part of the run's active time.
            await asyncio.to_thread(self._session.tick if self._active else self._session.renew)
            await asyncio.sleep(self._timings.tick)

    async def _wait_until_published(self) -> bool:
        """Wait for the artifacts; False if the run is no longer judged, because Redis lost that."""
        began = time.monotonic()
        limit = self._timings.publish_timeout + _PUBLISH_EACH * len(self._samples)
        deadline, told = began + limit, False
        pause = 0.005
        while True:
            state = await asyncio.to_thread(self._ledger.state)
            if state is not None and state.published:
                return True
            if state is None or state is RunState.RUNNING:
                return False
            if state is RunState.FAILED:
                meta = await asyncio.to_thread(self._ledger.meta)
                raise OutputError(str(meta and meta.publish_error))
            if not told and time.monotonic() - began > self._timings.publish_note:
                told = True
                self._progress.note(
                    "waiting for an aggregator to write the artifacts; one of another release "
                    "leaves this run alone, and its log says so"
                )
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"no aggregator wrote the artifacts within {limit:.0f} s; start one and repeat "
                    "the command, no work is lost (one of another release leaves the run alone, "
                    "and its log says so)"
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
