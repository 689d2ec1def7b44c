"""Runs read back for comparing: of each verdict only what a comparison looks at."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from shared.errors import DataError
from shared.finished_run import FinishedRun, open_run
from shared.schemas import SampleId, Verdict
from shared.statuses import FinalStatus


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of a sample."""

    final_status: FinalStatus
    accepted: bool
    pass_ratio: float
    cases_passed: int
    cases_total: int
    detail: str | None
    method: str
    checker: str

    @property
    def judged(self) -> bool:
        """Whether the verdict says something about the answer."""
        return self.final_status is not FinalStatus.API_ERROR

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        return cls(
            final_status=verdict.final_status,
            accepted=verdict.accepted,
            pass_ratio=verdict.pass_ratio,
            cases_passed=verdict.cases_passed,
            cases_total=verdict.cases_total,
            detail=verdict.detail,
            method=verdict.method,
            checker=verdict.checker,
        )


@dataclass(frozen=True)
class ComparedRun:
    """A finished run under the letter by which tables and messages call it."""

    label: str
    run: FinishedRun
    verdicts: Mapping[str, Mapping[SampleId, Judged]]

    @property
    def notes(self) -> list[str]:
        """What is to be known of the run before its numbers are believed."""
        notes = [f"{self.label}: {torn}" for torn in self.run.skipped]
        if not self.run.run.get("complete"):
            state = self.run.run.get("state", "unknown")
            unjudged = self.run.run.get("samples_unjudged", "?")
            notes.append(f"{self.label} is {state}: {unjudged} samples without a verdict")
        return notes


def read_runs(folders: Sequence[str]) -> list[ComparedRun]:
    """Read the runs, called A, B, C … in this order.

    Raises:
        OutputError: A folder holds no finished run, or a line of its verdicts is none.
    """
    return [_read(label(place), open_run(folder)) for place, folder in enumerate(folders)]


def label(place: int) -> str:
    letters = string.ascii_uppercase
    return letters[place] if place < len(letters) else f"run {place + 1}"


def common_datasets(first: ComparedRun, second: ComparedRun) -> list[str]:
    """The data sets that both have, in the first one's order.

    Raises:
        DataError: There is none.
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
    verdicts: dict[str, dict[SampleId, Judged]] = {}
    for verdict in run.verdicts():
        verdicts.setdefault(verdict.dataset, {})[verdict.sample] = Judged.of(verdict)
    return ComparedRun(name, run, verdicts)


def _listed(run: ComparedRun) -> str:
    return ", ".join(run.verdicts) or "none"
