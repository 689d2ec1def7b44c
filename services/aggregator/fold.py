"""Following the ledger: verdict streams folded into the index as they come."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from redis import Redis

from services.aggregator.index import Database, SampleRow, open_database
from services.aggregator.index.facts import public
from services.aggregator.index.rows import LARGEST, ProblemFacts
from services.aggregator.index.writer import Batch, IndexWriter, KnownRun
from shared.ledger import EventGroup, Ledger, RunProgress, StreamEntry, runs_progress
from shared.plan import RunPlan
from shared.run_record import RunState
from shared.schemas import SampleId
from shared.service.logs import get_logger

log = get_logger(__name__)

# Completions are large: this many are in memory at once.
_BATCH = 200
_FACTS_EVERY = 1.0
# A reader that has been silent for so long keeps no place in the streams.
_ABANDONED = 600.0

Record = TypeVar("Record", bound=BaseModel)


class Runs:
    """All runs that the ledger knows. One thread follows them, at most one at a time."""

    def __init__(self, redis: Redis, database: Database | None = None) -> None:
        """``database``: where the index is kept; a temporary one where there is none."""
        self.database = database or open_database()
        self._redis = redis
        self._writer = IndexWriter(self.database)
        self._group = EventGroup(redis, self.database.name, f"{socket.gethostname()}:{os.getpid()}")
        self._begun: set[int] = set()
        self._told: dict[int, float] = {}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Have ``catch_up`` end after the batch in hand."""
        self._stopping.set()

    def catch_up(self) -> bool:
        """Index all that is new; returns whether there was anything."""
        looks = {look.run: look for look in runs_progress(self._redis)}
        known = self._writer.runs()
        for run in known.values():
            if run.run not in looks or looks[run.run].incarnation != run.incarnation:
                self._writer.drop_run(run)
                self._begun.discard(run.id)
        return sum(self._follow(look, known.get(look.run)) for look in looks.values()) > 0

    def unpublished(self) -> Iterator[Ledger]:
        """The runs whose samples all have a verdict and whose artifacts are not written."""
        for look in runs_progress(self._redis):
            if look.state == RunState.JUDGED:
                yield Ledger(self._redis, look.run)

    def _follow(self, look: RunProgress, run: KnownRun | None) -> bool:
        ledger = Ledger(self._redis, look.run)
        if run is None or run.incarnation != look.incarnation:
            self._writer.add_run(look, _planned(ledger.plan()))
            run = self._writer.runs()[look.run]
        busy = look.last_event != run.position and self._index(ledger, run)
        self._tell(ledger, run, look)
        return busy

    def _index(self, ledger: Ledger, run: KnownRun) -> bool:
        """Read the stream to its end; an entry is acknowledged when it is in the index."""
        if run.id not in self._begun:
            if not self._group.begin(run.run, run.position):
                return False
            self._group.drop_abandoned(run.run, _ABANDONED)
            self._begun.add(run.id)
        busy, position = False, run.position
        while not self._stopping.is_set() and (
            entries := self._group.read(run.run, position, _BATCH)
        ):
            batch = self._batch(ledger, run, [_storable(entry) for entry in entries])
            if ledger.incarnation() != run.incarnation:
                return True  # what was read may be of either; the new one is read from its start
            self._writer.apply(run, batch)
            self._group.ack(run.run, [entry.id for entry in entries])
            busy, position = True, entries[-1].id
        return busy

    def _batch(self, ledger: Ledger, run: KnownRun, entries: Sequence[StreamEntry]) -> Batch:
        samples = list(dict.fromkeys(e.event.sample for e in entries if e.event))
        verdicts = _readable(samples, ledger.verdicts, ledger.verdict)
        generations = {
            g.sample: g for g in _readable(samples, ledger.completions, ledger.completion)
        }
        facts: dict[tuple[str, str], ProblemFacts] = {}
        rows = {}
        for verdict in verdicts:
            sample = verdict.sample
            problem = (sample.dataset, sample.problem_id)
            if problem not in facts:
                facts[problem] = self._problem_facts(ledger, run, sample)
            rows[sample] = SampleRow.of(verdict, generations.get(sample), facts[problem])
        return Batch(
            entries, rows, {v.sample: [f.kind for f in v.infra_failures] for v in verdicts}
        )

    def _problem_facts(self, ledger: Ledger, run: KnownRun, sample: SampleId) -> ProblemFacts:
        if found := self._writer.problem_facts(run, sample):
            return found
        try:
            problem = ledger.problem(sample.dataset, sample.problem_id)
        except ValidationError:
            problem = None
        return ProblemFacts() if problem is None else ProblemFacts.of(problem)

    def _tell(self, ledger: Ledger, run: KnownRun, look: RunProgress) -> None:
        """Bring state and facts up to date: at once when the state changes, else once a second."""
        now = time.monotonic()
        due = now - self._told.get(run.id, 0.0) >= _FACTS_EVERY
        if look.state != run.state or run.id not in self._told or (due and _moves(look)):
            self._writer.set_facts(run, look, public(ledger.meta_document()))
            self._told[run.id] = now


def _planned(plan: RunPlan | None) -> dict[str, tuple[int, int]]:
    return {one.name: (one.problems, len(one.owed)) for one in plan.datasets} if plan else {}


def _storable(entry: StreamEntry) -> StreamEntry:
    """The entry as one nobody can read where its sample's number is beyond SQLite's."""
    if entry.event is None or entry.event.sample.sample_index <= LARGEST:
        return entry
    return StreamEntry(entry.id, None)


def _moves(look: RunProgress) -> bool:
    return look.state is None or not look.state.final


def _readable(
    samples: Sequence[SampleId],
    read_many: Callable[[Sequence[SampleId]], Iterator[Record]],
    read_one: Callable[[SampleId], Record | None],
) -> list[Record]:
    """Read records together, or one by one where some cannot be read (another version wrote it)."""
    try:
        return list(read_many(samples))
    except ValidationError:
        found = []
    for sample in samples:
        try:
            record = read_one(sample)
        except ValidationError as error:
            log.error("a record cannot be read", sample=sample.key, reason=str(error))
            continue
        if record is not None:
            found.append(record)
    return found
