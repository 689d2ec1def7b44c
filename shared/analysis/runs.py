"""Finished runs loaded for comparison: of each verdict, only the fields that a comparison uses."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from shared.errors import DataError
from shared.finished_run import FinishedRun, open_run
from shared.outlines import read_outlines
from shared.run_record import RunRecord
from shared.schemas import SampleId, Verdict
from shared.statuses import FinalStatus, JudgeMethod


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
    method: JudgeMethod
    checker: str

    @property
    def judged(self) -> bool:
        """Whether the status describes the answer rather than an infrastructure failure."""
        return self.final_status is not FinalStatus.API_ERROR

    @property
    def pass_ratio_high(self) -> float:
        """The pass ratio if all cases that were not run passed; the exact one is at most this."""
        left = self.cases_not_run / self.cases_total if self.cases_total else 0.0
        return min(1.0, self.pass_ratio + left)

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        return cls(
            final_status=verdict.final_status,
            accepted=verdict.accepted,
            pass_ratio=verdict.pass_ratio,
            cases_passed=verdict.cases_passed,
            cases_total=verdict.cases_total,
            cases_not_run=verdict.cases_not_run,
            detail=verdict.detail,
            method=verdict.method,
            checker=verdict.checker,
        )


@dataclass(frozen=True)
class ComparedRun:
    """A finished run, with its letter in tables and messages.

    Attributes:
        label: The letter.
        run: The run.
        verdicts: By data set and sample.
        digests: :func:`problem_digest` by data set and problem id; runs of earlier versions did not
            record them.
    """

    label: str
    run: FinishedRun
    verdicts: Mapping[str, Mapping[SampleId, SampleVerdict]]
    digests: Mapping[str, Mapping[str, str]]

    @property
    def record(self) -> RunRecord:
        return self.run.record

    def data_sha256(self, dataset: str) -> str | None:
        """SHA-256 over the problems of a data set; None if it is not recorded."""
        return next((d.sha256 for d in self.record.datasets if d.dataset == dataset), None)

    @property
    def notes(self) -> list[str]:
        """Caveats about the run's numbers: untrusted, incomplete, or with a torn last line."""
        notes = [f"{self.label}: {torn}" for torn in self.run.skipped]
        record = self.record
        notes += [f"{self.label} is untrusted: {line}" for line in record.distrust]
        if not record.complete:
            unjudged = f"{record.samples_unjudged} samples without a verdict"
            notes.append(f"{self.label} is {record.state}: {unjudged}")
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


def common_datasets(first: ComparedRun, second: ComparedRun) -> list[str]:
    """The data sets of both runs, in the first one's order.

    Raises:
        DataError: The runs have no data set in common.
    """
    common = [name for name in first.verdicts if name in second.verdicts]
    if not common:
        raise DataError(
            f"{first.label} and {second.label} have no data set in common: "
            f"{_listed(first)} in {first.label}, {_listed(second)} in {second.label}; "
            "compare runs over the same data"
        )
    return common


def _read(name: str, run: FinishedRun) -> ComparedRun:
    verdicts: dict[str, dict[SampleId, SampleVerdict]] = {}
    for verdict in run.verdicts():
        verdicts.setdefault(verdict.dataset, {})[verdict.sample] = SampleVerdict.of(verdict)
    digests: dict[str, dict[str, str]] = {}
    for outline in read_outlines(run.folder):
        if outline.digest:
            digests.setdefault(outline.dataset, {})[outline.problem_id] = outline.digest
    return ComparedRun(name, run, verdicts, digests)


def _listed(run: ComparedRun) -> str:
    return ", ".join(run.verdicts) or "none"
