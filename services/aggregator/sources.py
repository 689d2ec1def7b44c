"""Sources of a run's samples: what the index does not hold, from the ledger or a run's folder.

The index has figures and names. Prompts, completions, verdicts and cases are read from where they
are: from Redis while a run is in the ledger (:class:`LedgerSource`), else from its folder
(:class:`services.aggregator.folders.source.FolderSource`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from services.aggregator.index.overview import IndexedRun
from shared.case_records import SampleCases, failing_first, readable_tests
from shared.errors import OutputError
from shared.ledger import Ledger
from shared.outlines import ProblemOutline
from shared.run_record import Provenance
from shared.schemas import CaseRecord, Generation, RecordedCases, SampleId, Verdict

ProblemKey = tuple[str, str]
"""Data set and id of a problem."""


class GoneError(OutputError):
    """A run's files are no longer those that the index was made from."""


@dataclass(frozen=True, slots=True)
class CaseWindow:
    """A part of a sample's recorded cases, those that failed first.

    ``recorded`` says which cases were recorded: None if none were. ``total`` of them are recorded.
    """

    recorded: RecordedCases | None
    total: int
    cases: Sequence[CaseRecord]


class SampleSource(Protocol):
    """Reads prompts, completions, verdicts and cases of one run. Thread-safe.

    Records that are missing are left out, or None. Every method may raise :class:`GoneError`, and
    ``OutputError`` for a record that cannot be read.
    """

    def outline(self, problem: ProblemKey) -> ProblemOutline | None:
        """Read a problem's prompt and facts."""
        ...

    def generation(self, sample: SampleId) -> Generation | None:
        """Read a sample's completion."""
        ...

    def verdict(self, sample: SampleId) -> Verdict | None:
        """Read a sample's verdict."""
        ...

    def cases(self, sample: SampleId, offset: int, limit: int) -> CaseWindow | None:
        """Read recorded cases of a sample; None if the sample does not exist."""
        ...

    def outlines(self, problems: Sequence[ProblemKey]) -> Iterator[ProblemOutline]:
        """Yield the outlines of ``problems`` in their order."""
        ...

    def generations(self, samples: Sequence[SampleId]) -> Iterator[Generation]:
        """Yield the completions of ``samples`` in their order, a few in memory at a time."""
        ...

    def verdicts(self, samples: Sequence[SampleId]) -> Iterator[Verdict]:
        """Yield the verdicts of ``samples`` in their order, a few in memory at a time."""
        ...

    def all_generations(self) -> Iterator[Generation]:
        """Yield all completions of the run, a few in memory at a time."""
        ...


SourceOf = Callable[[IndexedRun], SampleSource]
"""Makes the source of a run in the index."""


class LedgerSource:
    """Samples of a run in Redis."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def outline(self, problem: ProblemKey) -> ProblemOutline | None:
        found = self._ledger.problem(*problem)
        return ProblemOutline.of(found, self._provenance()) if found else None

    def generation(self, sample: SampleId) -> Generation | None:
        return self._ledger.completion(sample)

    def verdict(self, sample: SampleId) -> Verdict | None:
        return self._ledger.verdict(sample)

    def cases(self, sample: SampleId, offset: int, limit: int) -> CaseWindow | None:
        stored = next((packed for _, packed in self._ledger.cases([sample])), None)
        if stored is None:
            if self.generation(sample) is None and self.verdict(sample) is None:
                return None
            return CaseWindow(None, 0, ())
        found = SampleCases.unpacked(stored)
        shown = tuple(failing_first(found.cases)[offset : offset + limit])
        tests = readable_tests(self._ledger.problem(sample.dataset, sample.problem_id))
        complete = found.model_copy(update={"cases": shown}).of(sample, tests)
        return CaseWindow(found.recorded, len(found.cases), list(complete))

    def outlines(self, problems: Sequence[ProblemKey]) -> Iterator[ProblemOutline]:
        provenance = self._provenance()
        for problem in self._ledger.problems([SampleId(*problem) for problem in problems]):
            yield ProblemOutline.of(problem, provenance)

    def generations(self, samples: Sequence[SampleId]) -> Iterator[Generation]:
        return self._ledger.completions(samples)

    def verdicts(self, samples: Sequence[SampleId]) -> Iterator[Verdict]:
        return self._ledger.verdicts(samples)

    def all_generations(self) -> Iterator[Generation]:
        plan = self._ledger.plan()
        return self._ledger.completions(plan.samples() if plan else [*self._ledger.completed()])

    def _provenance(self) -> Provenance:
        """What a run recorded of its prompts; nothing if another version wrote it otherwise."""
        try:
            return Provenance.model_validate(self._ledger.meta_document())
        except ValidationError:
            return Provenance()
