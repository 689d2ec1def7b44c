"""A finished run, loaded from its output folder: the input of analysis, exports and reports.

What reads raises :class:`OutputError` if the folder has no finished run, ``run.json`` has an
unknown version, a file cannot be read, or a line other than a torn last one is invalid; iterators
raise it while iterating. Iterators that take a ``report`` call it with each such error instead, and
skip the line.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import fsspec
from pydantic import BaseModel, ValidationError

from shared import artifacts
from shared.analysis.statistics import Metrics
from shared.artifacts import OutputFolder
from shared.errors import DataError, OutputError, PlumblineError, reading
from shared.foreign_json import TornLineError, parse_record, read_lines
from shared.redaction import redact_address
from shared.run_record import RunRecord, read_record
from shared.schemas import CaseRecord, Generation, SampleId, Verdict, describe

RecordT = TypeVar("RecordT", bound=BaseModel)
Report = Callable[[PlumblineError], None]


# Folders in a run's folder in which there is no run, but many files.
_WITHOUT_RUNS = {artifacts.QA_LOGS, artifacts.WANDB, "logs", "redis"}


class NoFolderError(DataError):
    """The folder does not exist, or not yet."""


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
    folders: list[str] = []
    with suppress(NoFolderError):
        folders = sorted(folder for folder, _ in find_runs(url))
    for folder in folders:
        try:
            runs.append(open_run(folder, unpublished=unpublished))
        except OutputError as error:
            broken.append(str(error))
    return runs, broken


def find_runs(url: str) -> Iterator[tuple[str, Mapping[str, Mapping[str, object]]]]:
    """Yield the folders of the runs below a folder, or itself, with the facts of their files.

    Hidden folders and links that lead into the folder itself are left out.

    Raises:
        OutputError: No filesystem is installed for the URL.
        NoFolderError: While iterating: it does not exist.
        DataError: While iterating: it cannot be listed.
    """
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise OutputError(f"{redact_address(url)}: {error}") from None
    with reading(url):
        fs.invalidate_cache()
        if not fs.isdir(root):
            raise NoFolderError(f"{redact_address(url)}: no such folder")
        fs.ls(root)  # the walk leaves out what cannot be listed
        for path, folders, files in fs.walk(root, detail=True):
            without_runs = set()
            if artifacts.RUN in files:
                without_runs = _WITHOUT_RUNS
                below = str(path)[len(str(root)) :].strip("/")
                yield f"{url.rstrip('/')}/{below}" if below else url, files
            for name, info in list(folders.items()):
                back = info.get("islink") and _leads_back(root, str(info["name"]))
                if name.startswith(".") or name in without_runs or back:
                    del folders[name]


def _leads_back(root: str, link: str) -> bool:
    """Whether a link leads to a folder that is searched anyway, or to one around it."""
    start, end = Path(root).resolve(), Path(link).resolve()
    return end.is_relative_to(start) or start.is_relative_to(end)


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
