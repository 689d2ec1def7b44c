"""The live picture of the runs: verdict streams folded as they come."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from redis import Redis

from shared.ledger import Ledger, RunState, VerdictEvent, list_runs
from shared.schemas import SampleId
from shared.statuses import FinalStatus


@dataclass
class RunFold:
    """One run. Folding an event twice changes nothing, so a restart may read all from the start."""

    ledger: Ledger
    incarnation: str | None = None
    last: str = "0"
    statuses: dict[SampleId, FinalStatus] = field(default_factory=dict)

    def fold(self, event: VerdictEvent) -> None:
        self.statuses[event.sample] = event.status
        self.last = event.entry

    def catch_up(self) -> int:
        """Fold what is new in the stream; returns how many entries that was."""
        count = 0
        while events := self.ledger.events(self.last):
            for event in events:
                self.fold(event)
            count += len(events)
        return count

    def counts(self) -> Counter[tuple[str, FinalStatus]]:
        """Samples by data set and status."""
        return Counter((sample.dataset, status) for sample, status in self.statuses.items())


class Runs:
    """All runs that the ledger knows."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._folds: dict[str, RunFold] = {}

    def catch_up(self) -> bool:
        """Fold all that is new; returns whether there was anything."""
        names = list_runs(self._redis)
        for gone in set(self._folds) - set(names):
            del self._folds[gone]
        for name in names:
            ledger = Ledger(self._redis, name)
            incarnation = ledger.incarnation()
            if name not in self._folds or self._folds[name].incarnation != incarnation:
                self._folds[name] = RunFold(ledger, incarnation)
        return sum(fold.catch_up() for fold in self._folds.values()) > 0

    def unpublished(self) -> Iterator[RunFold]:
        """The runs whose samples all have a verdict and whose artifacts are not written."""
        for fold in self._folds.values():
            if fold.ledger.state() is RunState.JUDGED:
                yield fold

    def all(self) -> dict[str, RunFold]:
        return dict(self._folds)
