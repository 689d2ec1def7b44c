"""Recorded cases in a report: tables of the samples whose texts it has, as many as fit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from heapq import heappop, heappush
from itertools import groupby

from services.aggregator.marks import CaseMarks
from services.aggregator.report.samples import Bounds, report_language
from services.aggregator.report.script_json import compact
from shared.case_records import failing_first
from shared.finished_run import FinishedRun
from shared.schemas import CaseRecord, SampleId
from shared.text import shorten_middle

COLUMNS = (
    *("case_index", "status", "input", "expected", "actual", "stderr", "exit_code", "duration"),
    *("cpu_time", "memory_mb", "compile_duration", "compile_stderr"),
)
_TEXTS = {"input", "expected", "actual", "stderr", "compile_stderr"}
# Cases of a run that was resumed with another ``output.cases``.
_MIXED = "mixed"


class CaseTables:
    """Tables of a run's recorded cases, each as JSON: ``{"total": …, "rows": [[…], …]}``.

    ``rows`` are the values of ``COLUMNS``, and marks, of the cases that failed first.

    Attributes:
        recorded: ``output.cases`` of the run, or ``mixed``; None if no cases were recorded.
        cases: Number of recorded cases.
        included: Number of those in the tables.
        samples: Number of samples that have a table with cases.
    """

    def __init__(self, run: FinishedRun, places: Mapping[SampleId, int], bounds: Bounds) -> None:
        """Read the record once; no more than the tables and one sample's cases are in memory.

        Args:
            run: The run.
            places: The samples that may have a table. Where they do not all fit, those with the
                highest places are left out.
            bounds: Size limits.

        Raises:
            OutputError: The record is invalid.
        """
        kinds = run.record.cases.samples if run.record.cases else {}
        self.recorded = None if not kinds else next(iter(kinds)) if len(kinds) == 1 else _MIXED
        self.cases = self.included = 0
        self._totals: dict[SampleId, int] = {}
        self._rows: dict[SampleId, Sequence[str]] = {}
        self._read(run, places, bounds)

    @property
    def samples(self) -> int:
        return len(self._rows)

    def json(self, sample: SampleId) -> str:
        """Return the table of a sample; its cases are missing if they did not fit."""
        rows = ",".join(self._rows.get(sample, ()))
        return f'{{"total":{self._totals.get(sample, 0)},"rows":[{rows}]}}'

    def _read(self, run: FinishedRun, places: Mapping[SampleId, int], bounds: Bounds) -> None:
        left = bounds.case_bytes
        last: list[tuple[int, int, SampleId]] = []
        for sample, found in groupby(run.cases(), key=lambda case: case.sample):
            recorded = list(found)
            self.cases += len(recorded)
            if sample not in places or sample in self._totals:
                continue
            self._totals[sample] = len(recorded)
            chosen = failing_first(recorded)[: bounds.cases]
            language = report_language(run, sample, places[sample], bounds)
            self._rows[sample] = rows = [_row(case, bounds, language) for case in chosen]
            self.included += len(rows)
            size = sum(len(row.encode()) + 1 for row in rows)
            left -= size
            heappush(last, (-places[sample], size, sample))
            while left < 0:
                _, freed, evicted = heappop(last)
                left += freed
                self.included -= len(self._rows.pop(evicted))


def _row(case: CaseRecord, bounds: Bounds, language: str | None) -> str:
    shortened = {
        name: shorten_middle(text, bounds.case_characters)
        for name in _TEXTS
        if (text := getattr(case, name))
    }
    shown = case.model_copy(update=shortened)
    marks = asdict(CaseMarks.of(shown, language))
    return compact([*(getattr(shown, name) for name in COLUMNS), marks])
