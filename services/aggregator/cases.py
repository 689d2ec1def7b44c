"""Recorded cases of a sample, which the index does not hold: from the ledger or a run's folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from services.aggregator.index.overview import IndexedRun
from services.aggregator.index.queries import PageQuery
from services.aggregator.marks import CaseMarks
from shared import artifacts
from shared.case_records import SampleCases, failing_first
from shared.finished_run import record_of
from shared.foreign_json import read_lines
from shared.ledger import Ledger
from shared.run_record import CasesRecord
from shared.schemas import CaseRecord, RecordedCases, SampleId, readable_tests

Cases = tuple[RecordedCases | None, Sequence[CaseRecord]]
"""Which cases of a sample were recorded, None if none, and these."""
ReadCases = Callable[[IndexedRun, SampleId], Cases]


@dataclass(frozen=True, slots=True)
class CasePage:
    """Recorded cases of a sample, those that failed first, then by place.

    ``recorded`` says which cases were recorded: None if none were when the sample was judged.
    ``total`` of them are recorded, ``next`` is the offset of the following page, None on the last.
    ``marks`` are those of the cases, in their order.
    """

    recorded: RecordedCases | None
    total: int
    cases: list[CaseRecord]
    marks: list[CaseMarks]
    next: int | None

    @classmethod
    def of(
        cls,
        recorded: RecordedCases | None,
        cases: Sequence[CaseRecord],
        query: PageQuery,
        language: str,
    ) -> "CasePage":
        end = query.offset + query.limit
        shown = failing_first(cases)[query.offset : end]
        return cls(
            recorded=recorded,
            total=len(cases),
            cases=shown,
            marks=[CaseMarks.of(case, language) for case in shown],
            next=end if end < len(cases) else None,
        )


def ledger_cases(ledger: Ledger, sample: SampleId) -> Cases:
    """Read the cases of a sample that the ledger recorded."""
    stored = next((packed for _, packed in ledger.cases([sample])), None)
    if stored is None:
        return None, []
    cases = SampleCases.unpacked(stored)
    tests = readable_tests(ledger.problem(sample.dataset, sample.problem_id))
    return cases.recorded, list(cases.of(sample, tests))


def folder_cases(run: IndexedRun, sample: SampleId) -> Cases:
    """Read the cases of a sample that a finished run recorded: the file up to them.

    Raises:
        OutputError: A line cannot be read.
        DataError: The file cannot be read.
    """
    facts = run.facts.get("cases")
    if not isinstance(facts, dict) or run.folder is None:
        return None, []
    kinds = CasesRecord.model_validate(facts).samples
    # A run that was resumed with another setting has several.
    recorded: RecordedCases | None = next(iter(kinds), None) if len(kinds) < 2 else "failed"
    path = f"{run.folder.rstrip('/')}/{artifacts.CASES}"
    begin, cases = to_json(sample).removesuffix(b"}") + b",", list[CaseRecord]()
    for number, line in read_lines(path):
        if line.startswith(begin):
            cases.append(record_of(CaseRecord, f"{path}:{number}", line))
        elif cases:  # a sample's cases follow each other
            break
    return recorded, cases
