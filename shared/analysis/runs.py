"""Runs loaded for comparison: of each verdict, only the fields that a comparison uses."""

import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shared.analysis.bootstrap import Floats, Ints
from shared.finished_run import FinishedRun, open_run
from shared.outlines import read_outlines
from shared.run_record import RunRecord
from shared.schemas import ProblemFacts, Verdict
from shared.statuses import FinalStatus

STATUSES = tuple(FinalStatus)
_PLACES: dict[str, int] = {status: place for place, status in enumerate(STATUSES)}
_API_ERROR = _PLACES[FinalStatus.API_ERROR]
_MOST = 2**63 - 1

Bools = npt.NDArray[np.bool_]
VERDICT_COLUMNS = (
    *("problem_id", "sample_index", "final_status", "accepted", "pass_ratio"),
    *("cases_passed", "cases_total", "cases_not_run", "detail"),
)
"""Fields of a verdict that a comparison loads."""


@dataclass(frozen=True, slots=True)
class SampleVerdict:
    """The verdict on one sample."""

    final_status: FinalStatus
    accepted: bool
    pass_ratio: float
    cases_passed: int
    cases_total: int
    cases_not_run: int
    detail: str | None


@dataclass(frozen=True, slots=True)
class ProblemNote:
    """What a comparison knows of a problem in one run.

    Attributes:
        digest: :func:`problem_digest`.
        facts: What its slices are made by.
    """

    digest: str = ""
    facts: ProblemFacts = field(default_factory=ProblemFacts)


@dataclass(frozen=True, eq=False)
class DatasetVerdicts:
    """The verdicts of a data set as columns, one row per sample, by problem id and index.

    Attributes:
        problem_ids: The problems, sorted.
        problem: The place of each row's problem in ``problem_ids``.
        sample_index: Of each row, as the following.
        status: Place in ``STATUSES``.
        accepted: Whether the answer was accepted.
        pass_ratio: Share of cases passed.
        cases: Cases passed, all cases, and cases not run: three columns.
        detail: None where there is none.
    """

    problem_ids: list[str]
    problem: Ints
    sample_index: Ints
    status: Ints
    accepted: Bools
    pass_ratio: Floats
    cases: Ints
    detail: Sequence[str | None]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> Self:
        """Make columns of ``VERDICT_COLUMNS``, which are sorted and of different samples."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(VERDICT_COLUMNS)
        ids, indexes, statuses, accepted, ratios, passed, total, left, details = columns
        names = list(dict.fromkeys(ids))
        places = {name: place for place, name in enumerate(names)}
        return cls(
            problem_ids=names,
            problem=np.array([places[name] for name in ids], dtype=np.int64),
            sample_index=np.array(indexes, dtype=np.int64),
            status=np.array([_PLACES[status] for status in statuses], dtype=np.int64),
            accepted=np.array(accepted, dtype=bool),
            pass_ratio=np.array(ratios, dtype=float),
            cases=np.array([passed, total, left], dtype=np.int64).T,
            # Few are different.
            detail=[detail if detail is None else sys.intern(str(detail)) for detail in details],
        )

    def __len__(self) -> int:
        return len(self.problem)

    def keys(self) -> Iterator[tuple[str, int]]:
        """Problem and index of each row."""
        names = map(self.problem_ids.__getitem__, self.problem.tolist())
        return zip(names, self.sample_index.tolist(), strict=True)

    @property
    def judged(self) -> Bools:
        """Whether the status describes the answer rather than an infrastructure failure."""
        return np.asarray(self.status != _API_ERROR)

    def has_status(self, status: FinalStatus) -> Floats:
        """1 where a sample has the status, else 0."""
        return np.asarray(self.status == _PLACES[status], dtype=float)

    def verdict(self, row: int) -> SampleVerdict:
        passed, total, left = (int(number) for number in self.cases[row])
        return SampleVerdict(
            final_status=STATUSES[self.status[row]],
            accepted=bool(self.accepted[row]),
            pass_ratio=float(self.pass_ratio[row]),
            cases_passed=passed,
            cases_total=total,
            cases_not_run=left,
            detail=self.detail[row],
        )


Value = Callable[[DatasetVerdicts], Floats | Ints | Bools]
"""A value of each sample."""


def accepted(verdicts: DatasetVerdicts) -> Bools:
    return verdicts.accepted


def pass_ratio(verdicts: DatasetVerdicts) -> Floats:
    """Cases that were not run count as failed."""
    return verdicts.pass_ratio


def pass_ratio_high(verdicts: DatasetVerdicts) -> Floats:
    """Cases that were not run count as passed; the exact pass ratio is at most this."""
    left = verdicts.cases[:, 2] / np.maximum(verdicts.cases[:, 1], 1)
    return np.minimum(1.0, verdicts.pass_ratio + left)


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run, with its letter in tables and messages.

    Attributes:
        label: The letter.
        name: Its name, or its id if it has none.
        place: Its folder or its id, for messages.
        record: Its record; of a run in progress as far as it goes.
        verdicts: By data set.
        problems: By data set and problem id.
        summary: Published metrics by data set, as far as there are any.
        skipped: Messages about what could not be read of its files.
    """

    label: str
    name: str
    place: str
    record: RunRecord
    verdicts: Mapping[str, DatasetVerdicts]
    problems: Mapping[str, Mapping[str, ProblemNote]]
    summary: Mapping[str, Mapping[str, object]]
    skipped: Sequence[str] = ()

    def data_sha256(self, dataset: str) -> str | None:
        """SHA-256 over the problems of a data set; None if it is not recorded."""
        hashes = (d.sha256 for d in self.record.datasets if d.dataset == dataset)
        return next(hashes, None) or None

    def note(self, dataset: str, problem_id: str) -> ProblemNote:
        return self.problems.get(dataset, {}).get(problem_id, ProblemNote())

    @property
    def notes(self) -> list[str]:
        """Caveats about the run's numbers: untrusted, incomplete, or with a torn last line."""
        notes = [*self.skipped]
        record = self.record
        notes += [f"untrusted: {line}" for line in record.distrust]
        if record.stopped:
            notes.append(f"{record.stopped.described}: no baseline, and its interval is too narrow")
        if not record.complete:
            unjudged = f"{record.samples_unjudged} samples without a verdict"
            sofar = "" if record.state.final else " so far"
            notes.append(f"{record.state}: {unjudged}{sofar}")
        return notes


def read_runs(folders: Sequence[str]) -> list[ComparedRun]:
    """Load finished runs, labelled A, B, C … in this order.

    Raises:
        OutputError: A folder has no finished run, or a line of its verdicts or problems is invalid.
    """
    return [_read(label(place), open_run(folder)) for place, folder in enumerate(folders)]


def label(place: int) -> str:
    letters = string.ascii_uppercase
    return letters[place] if place < len(letters) else f"run {place + 1}"


def _read(name: str, run: FinishedRun) -> ComparedRun:
    columns: dict[str, Columns] = {}
    for verdict in run.verdicts():
        columns.setdefault(verdict.dataset, Columns()).add(verdict)
    problems: dict[str, dict[str, ProblemNote]] = {}
    for outline in read_outlines(run.folder):
        problems.setdefault(outline.dataset, {})[outline.problem_id] = ProblemNote(
            outline.digest, outline.facts
        )
    return ComparedRun(
        label=name,
        name=run.name,
        place=run.folder.shown,
        record=run.record,
        verdicts={dataset: rows.sorted() for dataset, rows in columns.items()},
        problems=problems,
        summary=run.summary,
        skipped=run.skipped,
    )


class Columns:
    """Rows of a data set's verdicts, in any order."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], list[object]] = {}

    def add(self, verdict: Verdict) -> None:
        """Add a verdict; a later one of the same sample takes its place."""
        values = (getattr(verdict, name) for name in VERDICT_COLUMNS)
        # Numbers that no column can hold are its largest.
        row = [min(value, _MOST) if isinstance(value, int) else value for value in values]
        self._rows[verdict.problem_id, verdict.sample_index] = row

    def sorted(self) -> DatasetVerdicts:
        """The columns by problem id and index."""
        return DatasetVerdicts.of([self._rows[key] for key in sorted(self._rows)])
