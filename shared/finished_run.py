"""A finished run, loaded from its output folder: the input of analysis, exports and reports.

What reads raises :class:`OutputError` if the folder has no finished run, ``run.json`` has an
unknown version, a file cannot be read, or a line other than a torn last one is invalid; iterators
raise it while iterating. Iterators that take a ``report`` call it with each such error instead, and
skip the line.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from shared import artifacts
from shared.analysis.statistics import Metrics
from shared.artifacts import OutputFolder
from shared.errors import DataError, OutputError, PlumblineError
from shared.foreign_json import TornLineError, parse_record, read_lines
from shared.run_record import RunRecord, read_record
from shared.schemas import CaseRecord, Generation, SampleId, Verdict, describe

RecordT = TypeVar("RecordT", bound=BaseModel)
Report = Callable[[PlumblineError], None]


class LeftOutError(DataError):
    """A line that can be read, but does not belong to the others."""


@dataclass(frozen=True)
class FinishedRun:
    """The artifacts of one run; ``record`` is ``run.json``, ``summary`` metrics by data set.

    ``skipped`` has messages about torn last lines, which are skipped, and about verdicts that are
    gone; it is filled while files are read.
    """

    folder: OutputFolder
    record: RunRecord
    summary: Mapping[str, Metrics]
    skipped: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.record.name or self.record.run

    def generations(self, report: Report | None = None) -> Iterator[Generation]:
        """Yield the completions in the order of the plan."""
        return read_artifact(self.folder, artifacts.GENERATIONS, Generation, report or self.strict)

    def verdicts(self, report: Report | None = None) -> Iterator[Verdict]:
        """Yield the verdicts in the order of the plan; ``skipped`` names a file that lost lines."""
        read = 0
        lines = read_artifact(self.folder, artifacts.VERDICTS, Verdict, report or self.strict)
        for verdict in lines:
            read += 1
            yield verdict
        if read < self.record.samples_judged and report is None:
            self._skip(
                f"{self.path(artifacts.VERDICTS)}: {read} of the {self.record.samples_judged} "
                f"verdicts that {artifacts.RUN} counts; put the file back, or repeat the run's "
                "command, which writes it again"
            )

    def cases(self) -> Iterator[CaseRecord]:
        """Yield the recorded cases in the order of the plan, none if the run recorded none."""
        if self.folder.exists(artifacts.CASES):
            yield from read_artifact(self.folder, artifacts.CASES, CaseRecord, self.strict)

    def judged_samples(
        self, report: Report | None = None
    ) -> Iterator[tuple[Verdict, Generation | None]]:
        """Yield each verdict with its completion; streams both files, which have the same order."""
        waiting: dict[SampleId, Generation] = {}
        generations = self.generations(report)
        for verdict in self.verdicts(report):
            while verdict.sample not in waiting and (generation := next(generations, None)):
                waiting[generation.sample] = generation
            yield verdict, waiting.pop(verdict.sample, None)
        if report and (left := len(waiting) + sum(1 for _ in generations)):
            lost = f"no verdict on {left} of the completions; they are not shown"
            report(LeftOutError(f"{self.path(artifacts.VERDICTS)}: {lost}"))

    def strict(self, error: PlumblineError) -> None:
        """Skip a torn last line and lines that do not belong to the others; raise other errors."""
        if isinstance(error, TornLineError):
            self._skip(str(error))
        elif not isinstance(error, LeftOutError):
            raise OutputError(str(error))

    def path(self, name: str) -> str:
        return f"{self.folder.url.rstrip('/')}/{name}"

    def _skip(self, message: str) -> None:
        if message not in self.skipped:
            self.skipped.append(message)


def open_run(url: str, *, unpublished: bool = False) -> FinishedRun:
    """Open a run's folder, a local path or any fsspec URL.

    With ``unpublished`` also a run that has no artifacts yet; its summary is empty.
    """
    folder = OutputFolder(url)
    run, summary = folder.read_json(artifacts.RUN), folder.read_json(artifacts.SUMMARY)
    if run is None:
        raise OutputError(
            f"{url}: no run in this folder (no {artifacts.RUN}); name the folder of a finished run"
        )
    if summary is None and unpublished:
        summary = {}
    if not isinstance(summary, dict):
        raise OutputError(f"{url}: no {artifacts.SUMMARY}; finish the run, or publish it again")
    return FinishedRun(folder, read_record(run, f"{url.rstrip('/')}/{artifacts.RUN}"), summary)


def open_runs(url: str, *, unpublished: bool = False) -> tuple[list[FinishedRun], list[str]]:
    """Open the runs below a folder; returns them by path, and a message for each that is broken.

    ``unpublished`` is that of :func:`open_run`.
    """
    runs, broken = [], []
    for path in OutputFolder(url).find(artifacts.RUN):
        try:
            runs.append(open_run(path, unpublished=unpublished))
        except OutputError as error:
            broken.append(str(error))
    return runs, broken


def read_artifact(
    folder: OutputFolder, name: str, kind: type[RecordT], report: Report
) -> Iterator[RecordT]:
    """Yield the records of a file of lines."""
    path = f"{folder.url.rstrip('/')}/{name}"
    try:
        for number, line in read_lines(path):
            try:
                yield record_of(kind, f"{path}:{number}", line)
            except (DataError, OutputError) as error:
                report(error)
    except DataError as error:
        report(error)


def raise_error(error: PlumblineError) -> None:
    """Report an error by ending the reading."""
    raise OutputError(str(error))


def record_of(kind: type[RecordT], place: str, line: bytes) -> RecordT:
    """Parse a line of an artifact.

    Raises:
        DataError: The line is not JSON; the message begins with ``place``.
        OutputError: It is not such a record.
    """
    try:
        return parse_record(kind, place, line)
    except ValidationError as error:
        name = kind.__name__.removesuffix("Outline").lower()
        raise OutputError(f"{place}: not a {name} ({describe(error)})") from None
