"""Index ingestion: consume the verdict streams of all runs, exactly once per entry."""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache

from redis import Redis

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.writer import IndexWriter, JudgedSample, KnownRun
from services.aggregator.metrics import IngestMetrics
from shared.errors import OutputError
from shared.ledger import Ledger, RunProgress, VerdictEvent, runs_progress
from shared.outlines import ProblemOutline
from shared.run_record import DatasetRecord, Provenance, RunState
from shared.schemas import SampleId
from shared.service.logs import get_logger

log = get_logger(__name__)

# Entries per transaction; their completions are in memory and may be large.
BATCH = 200


class Ingester:
    """Indexes all runs of the ledger. Only one thread may call ``catch_up``."""

    def __init__(self, redis: Redis, database: Database | None = None) -> None:
        """Index the ledger of a server; the index is a temporary one by default."""
        self.database = database or open_database()
        self.metrics = IngestMetrics()
        self._redis = redis
        self._writer = IndexWriter(self.database)
        self._stored: dict[int, RunProgress] = {}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End ``catch_up`` after the current batch."""
        self._stopping.set()

    def catch_up(self) -> bool:
        """Index all new entries; return whether there were any."""
        runs = {progress.run: progress for progress in runs_progress(self._redis)}
        self._writer.sweep()
        indexed = self._writer.runs()
        for run in indexed.values():
            if run.folder is not None:
                continue  # RunFolders keeps these
            if run.run not in runs or runs[run.run].incarnation != run.incarnation:
                self._writer.drop_run(run)
        busy = [self._try_to_follow(progress, indexed.get(name)) for name, progress in runs.items()]
        return any(busy)

    def unpublished(self) -> Iterator[Ledger]:
        """Yield the runs that are judged completely but not published yet."""
        for progress in runs_progress(self._redis):
            if progress.state is RunState.JUDGED:
                yield Ledger(self._redis, progress.run)

    def index_of(self, ledger: Ledger) -> Database | None:
        """The index, if it has all entries of a run's stream and counts all its completions."""
        indexed = self._writer.runs().get(ledger.run)
        stored = indexed and self._stored.get(indexed.id)
        for now in runs_progress(self._redis):
            if now.run == ledger.run and indexed and stored:
                is_whole = indexed.position == now.last_event and (
                    (stored.incarnation, stored.last_event, stored.completions)
                    == (now.incarnation, now.last_event, now.completions)
                )
                return self.database if is_whole else None
        return None

    def _try_to_follow(self, progress: RunProgress, run: KnownRun | None) -> bool:
        """Follow a run; what cannot be read in one run holds up no other."""
        try:
            return self._follow(progress, run)
        except (OutputError, ValueError) as error:
            _report_unreadable(progress.run, str(error)[:1000])
            return False

    def _follow(self, progress: RunProgress, run: KnownRun | None) -> bool:
        ledger = Ledger(self._redis, progress.run)
        if run is None or run.incarnation != progress.incarnation:
            run = self._writer.add_run(progress, _datasets(ledger))
        busy = progress.last_event != run.position and self._index(ledger, run)
        self._update_facts(ledger, run, progress)
        return busy

    def _index(self, ledger: Ledger, run: KnownRun) -> bool:
        """Read the stream to its end; the position is stored with the rows of each batch."""
        busy, position = False, run.position
        while not self._stopping.is_set() and (events := ledger.events(position, count=BATCH)):
            judged, outlines = self._read(ledger, run, events)
            if ledger.incarnation() != run.incarnation:
                return True  # the run was restarted from scratch meanwhile: drop the batch
            self.metrics.record(*self._writer.apply(run, events, judged, outlines))
            busy, position = True, events[-1].entry
            if len(events) < BATCH:
                break
        return busy

    def _read(
        self, ledger: Ledger, run: KnownRun, events: Sequence[VerdictEvent]
    ) -> tuple[dict[SampleId, JudgedSample], list[ProblemOutline]]:
        """Verdicts and completions of samples, and outlines of problems that the index lacks."""
        samples = list(dict.fromkeys(event.sample for event in events))
        made = {generation.sample: generation for generation in ledger.completions(samples)}
        judged = {
            verdict.sample: (verdict, made.get(verdict.sample))
            for verdict in ledger.verdicts(samples)
        }
        problems = {(sample.dataset, sample.problem_id): sample for sample in judged}
        indexed = self._writer.known_problems(run, problems)
        unknown = [sample for problem, sample in problems.items() if problem not in indexed]
        provenance = (ledger.meta() if unknown else None) or Provenance()
        outlines = [ProblemOutline.of(problem, provenance) for problem in ledger.problems(unknown)]
        return judged, outlines

    def _update_facts(self, ledger: Ledger, run: KnownRun, progress: RunProgress) -> None:
        """Store state and metadata of a run that a command works on, or that has changed."""
        if progress.locked or self._stored.get(run.id) != progress:
            facts = {**ledger.meta_document(), "locked": progress.locked}
            self._writer.set_facts(run, progress, facts)
            self._stored[run.id] = progress


@lru_cache(maxsize=1000)
def _report_unreadable(run: str, reason: str) -> None:
    """Log that records of a run cannot be read, once for each run and reason."""
    log.error("a run's records in Redis cannot be read", run=run, reason=reason)


def _datasets(ledger: Ledger) -> list[DatasetRecord]:
    """The planned data sets; none without a readable plan."""
    try:
        plan = ledger.plan()
    except OutputError as error:
        log.error("a plan cannot be read", run=ledger.run, reason=str(error))
        return []
    return [DatasetRecord.of(dataset) for dataset in plan.datasets] if plan else []
