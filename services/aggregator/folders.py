"""Finished runs of folders in the index: added, read again when they change, dropped when removed.

A run that is in the ledger, too, is shown from there. Lines that cannot be read are reported and
skipped, so that the others can be shown. Memory holds one batch of samples.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from pydantic import ValidationError

from services.aggregator.index.database import Database
from services.aggregator.index.writer import IndexWriter, JudgedSample, KnownRun
from shared import artifacts
from shared.errors import OutputError, PlumblineError
from shared.finished_run import (
    FinishedRun,
    LeftOutError,
    NoFolderError,
    Report,
    find_runs,
    open_run,
)
from shared.ledger import RunProgress
from shared.outlines import read_outlines
from shared.redaction import redact, redact_address
from shared.run_record import JsonObject, PublishedResults
from shared.schemas import describe, is_encodable, sha256
from shared.text import shorten_end

# Samples in one transaction: each writes most pages of the run's indexes; more take memory.
_BATCH = 2000
# Fields of run.json that the page shows elsewhere, or that are written after the report.
_OMITTED = {"run", "qa_logs", "wandb"}


# Share of the time that may be spent on searching.
_SEARCHING = 0.05
# Notes on one run; a damaged file could have one on each line.
_MOST_NOTES = 20
_LISTED = 100
_LONGEST_NOTE = 500
_LONGEST_NAME = 1000
# Errors of one run's folder, which keep no other run from being shown.
_UNREADABLE = (PlumblineError, OSError, ValueError, RecursionError, sqlite3.IntegrityError)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A folder with a ``run.json``.

    Attributes:
        folder: Its URL.
        stamp: Digest of names, sizes and versions of the run's files.
        changed_at: Unix time of the last change of a file; 0 if the filesystem does not tell.
    """

    folder: str
    stamp: str
    changed_at: float


class _StoppedError(Exception):
    """The process is ending."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder, or a part of a run in it, that cannot be shown, and why."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A folder that is searched for runs.

    ``searched`` says whether that was done once, ``runs`` how many there are, ``error`` why it
    cannot be searched.
    """

    folder: str
    searched: bool = False
    runs: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FoldersStatus:
    """Folders whose finished runs are shown; empty if only the ledger's are.

    ``waiting`` runs are still to be read. ``unreadable`` lists the first of all things that cannot
    be read, ``unreadable_total`` is their number.
    """

    folders: Sequence[WatchedFolder] = ()
    waiting: int = 0
    unreadable: Sequence[Unreadable] = ()
    unreadable_total: int = 0


class RunFolders:
    """Keeps the finished runs below folders in the index. Only one thread may call ``refresh``."""

    def __init__(
        self,
        urls: Sequence[str],
        database: Database,
        *,
        in_ledger: Callable[[], Collection[str]] = tuple,
        searched: Callable[[FoldersStatus], object] = lambda _status: None,
    ) -> None:
        """Watch folders.

        Args:
            urls: Local paths or fsspec URLs.
            database: The index.
            in_ledger: Returns the ids of the runs that are shown from the ledger.
            searched: Called when all folders were searched for the first time.
        """
        self._urls = list(dict.fromkeys(urls))
        self._writer = IndexWriter(database)
        self._in_ledger = in_ledger
        self._searched = searched
        self._stopping = threading.Event()
        # Of folders that were opened: the id of the run, or the reason why it cannot be shown.
        self._names: dict[FoundRun, str] = {}
        self._broken: dict[FoundRun, str] = {}
        self._search_at = 0.0
        self.status = FoldersStatus([WatchedFolder(redact_address(url)) for url in self._urls])
        """The result of the last search."""

    def stop(self) -> None:
        """End ``refresh`` after the current batch."""
        self._stopping.set()

    def refresh(self) -> bool:
        """Look for runs, and read what is new or has changed; return whether there was any.

        A search that takes long is not repeated at once.
        """
        began = time.monotonic()
        if began < self._search_at:
            return False
        first = not all(folder.searched for folder in self.status.folders)
        folders, runs = self._search()
        self._search_at = time.monotonic() + (time.monotonic() - began) / _SEARCHING
        in_ledger = set(self._in_ledger())
        read = {run.folder: run.incarnation for run in self._writer.runs().values()}
        due = [
            run
            for run in sorted(runs, key=lambda run: run.changed_at, reverse=True)
            if run not in self._broken
            and self._names.get(run) not in in_ledger
            and read.get(run.folder) != run.stamp
        ]
        self._show(folders, len(due))
        if first:
            self._searched(self.status)
        # All of them are listed before the samples of the first one are read.
        announced = [(run, *parts) for run in due if (parts := self._announce(run, in_ledger))]
        for number, announcement in enumerate(announced):
            self._show(folders, len(announced) - number)
            if not self._stopping.is_set():
                self._read(*announcement)
        self._writer.sweep()
        self._show(folders, 0)
        return bool(due)

    def _search(self) -> tuple[list[WatchedFolder], set[FoundRun]]:
        """Search all folders, and drop the runs that are gone."""
        folders: list[WatchedFolder] = []
        runs: set[FoundRun] = set()
        lost: list[str] = []  # cannot be searched at the moment, so what was in them stays
        for url in self._urls:
            below, error = list[FoundRun](), None
            try:
                below = [_found(*run) for run in find_runs(url)]
            except PlumblineError as raised:
                error = _line(raised)
                lost += [] if isinstance(raised, NoFolderError) else [f"{url.rstrip('/')}/"]
            runs.update(below)
            folders.append(WatchedFolder(redact_address(url), True, len(below), error))
        present = {run.folder for run in runs}
        for shown in self._writer.runs().values():
            place = shown.folder and f"{shown.folder}/"
            if place and shown.folder not in present and not place.startswith(tuple(lost)):
                self._writer.drop_run(shown)
        for opened in (self._names, self._broken):
            for run in opened.keys() - runs:
                del opened[run]
        return folders, runs

    def _announce(
        self, place: FoundRun, in_ledger: Collection[str]
    ) -> tuple[FinishedRun, KnownRun, list[str]] | None:
        """Put a run into the index, still without samples, in the place of its earlier state.

        Returns:
            The run, its place in the index, and notes about what cannot be read.
        """
        notes: list[str] = []
        for before in self._writer.runs().values():
            if before.folder == place.folder:
                self._writer.drop_run(before)
        try:
            run = open_run(place.folder, unpublished=True)
            self._names[place] = run.record.run
            if run.record.run in in_ledger:
                return None
            name, report = self._name(run, place.folder), partial(_note, notes)
            return run, add_run(run, self._writer, name, report, place.folder), notes
        except _UNREADABLE as error:
            self._broken[place] = _line(error)
            return None

    def _read(self, place: FoundRun, run: FinishedRun, indexed: KnownRun, notes: list[str]) -> None:
        report = partial(_note, notes)
        try:
            if not run.folder.exists(artifacts.SUMMARY):
                report(_unfinished(run))
            if run.folder.exists(artifacts.VERDICTS) or run.record.state.published:
                load_samples(run, self._writer, indexed, report, self._go_on)
        except _StoppedError:
            return
        except _UNREADABLE as error:
            report(error)
        self._writer.finish_reading(indexed, place.stamp, notes)

    def _go_on(self, _batch: object) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    def _name(self, run: FinishedRun, folder: str) -> str:
        """The run's id, with its folder if another run or a copy has the id."""
        wanted, shown = run.record.run, redact_address(folder)
        if not (0 < len(wanted) <= _LONGEST_NAME and is_encodable(wanted) and "\0" not in wanted):
            return shown
        return f"{wanted} ({shown})" if wanted in self._writer.runs() else wanted

    def _show(self, folders: Sequence[WatchedFolder], waiting: int) -> None:
        unreadable = [(run.folder, reason) for run, reason in self._broken.items()]
        unreadable += self._writer.notes()
        listed = [Unreadable(redact_address(folder), why) for folder, why in unreadable[:_LISTED]]
        self.status = FoldersStatus(folders, waiting, listed, len(unreadable))


def _unfinished(run: FinishedRun) -> PlumblineError:
    if run.record.state.published:
        return OutputError(f"no {artifacts.SUMMARY}: its figures are missing")
    return OutputError("the run is not finished: repeat its command, which resumes it")


def _note(notes: list[str], error: Exception) -> None:
    """Add a message about a run, of which the first ones are kept."""
    if len(notes) <= _MOST_NOTES:
        notes.append(_line(error) if len(notes) < _MOST_NOTES else "and further lines")


def _line(error: Exception) -> str:
    """An error in one short line without secrets."""
    text = str(error) if isinstance(error, PlumblineError) else f"{type(error).__name__}: {error}"
    return shorten_end(" ".join(redact(text).split()), _LONGEST_NOTE)


# Versions of runs


# Files that the index is made from; the others of a run may change.
_READ = (*artifacts.FILES, artifacts.CASES)
# What filesystems call the version of a file.
_VERSION = ("mtime", "ino", "LastModified", "last_modified", "ETag", "etag", "updated", "created")


def _found(folder: str, files: Mapping[str, Mapping[str, object]]) -> FoundRun:
    infos = {name: files[name] for name in _READ if name in files}
    versions = [
        (name, info.get("size"), *(str(info.get(key)) for key in _VERSION))
        for name, info in infos.items()
    ]
    times = [time for info in infos.values() if isinstance(time := info.get("mtime"), float)]
    return FoundRun(folder, sha256(repr(versions)), max(times, default=0.0))


# Loading of a run, in one pass over each file


def run_facts(run: FinishedRun, report: Report) -> JsonObject:
    """Metadata and results of a run as the index keeps them, of ``run.json`` and the figures."""
    facts: JsonObject = run.record.model_dump(mode="json", exclude=_OMITTED)
    try:
        slices = run.folder.read_json(artifacts.SLICES)
        results = PublishedResults.model_validate({"metrics": run.summary, "slices": slices or {}})
        missing = {} if slices else {"slices": None}
        facts["results"] = {**results.model_dump(mode="json"), **missing}
    except OutputError as error:
        report(error)
    except ValidationError as error:
        report(OutputError(f"{run.folder.url}: the figures cannot be read ({describe(error)})"))
    return facts


def add_run(
    run: FinishedRun, writer: IndexWriter, name: str, report: Report, folder: str | None = None
) -> KnownRun:
    """Put a run into the index under a name, still without samples.

    ``folder`` is the URL of a folder that is watched: when it changes, the run is read again.
    """
    facts = run_facts(run, report)
    progress = RunProgress(name, "", run.record.state, "0", 0, 0)
    indexed = writer.add_run(progress, run.record.datasets, folder)
    writer.set_facts(indexed, progress, facts)
    return indexed


def load_samples(
    run: FinishedRun,
    writer: IndexWriter,
    indexed: KnownRun,
    report: Report,
    each: Callable[[Sequence[JudgedSample]], None] = lambda _batch: None,
) -> None:
    """Load problems, verdicts and completions. Runs of early versions have no problems.

    ``report`` is called with every line that cannot be read, ``each`` with each batch of samples.
    """
    outlines = read_outlines(run.folder, report)
    while some := list(islice(outlines, _BATCH)):
        writer.load_outlines(indexed, some)
    samples = run.judged_samples(report)
    while batch := list(islice(samples, _BATCH)):
        for sample in writer.load(indexed, batch):
            reason = "there is another verdict on it, or a number is too large; the line is skipped"
            path = run.path(artifacts.VERDICTS)
            report(LeftOutError(f"{path}: sample {sample.key}: {reason}"))
        each(batch)
