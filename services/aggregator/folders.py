"""Finished runs of folders in the index: added, read again when they change, dropped when removed.

A run that is in the ledger, too, is shown from there. Lines that cannot be read are reported and
skipped, so that the others can be shown. Memory holds one batch of samples.
"""

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import fsspec
from pydantic import ValidationError

from services.aggregator.index.database import Database
from services.aggregator.index.writer import DroppedRunError, IndexWriter, JudgedSample, KnownRun
from shared import artifacts
from shared.errors import DataError, OutputError, PlumblineError, reading
from shared.finished_run import FinishedRun, LeftOutError, Report, open_run
from shared.ledger import RunProgress
from shared.outlines import read_outlines
from shared.redaction import redact, redact_address
from shared.run_record import JsonObject, PublishedResults
from shared.schemas import describe, is_encodable
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


class NoFolderError(DataError):
    """The folder does not exist, or not yet."""


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
        self._opened: dict[str, _Opened] = {}
        self._search_at = 0.0
        self._status = FoldersStatus([WatchedFolder(redact_address(url)) for url in self._urls])

    @property
    def status(self) -> FoldersStatus:
        """The result of the last search; thread-safe."""
        return self._status

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
        folders, found, lost = self._search()
        self._search_at = time.monotonic() + (time.monotonic() - began) / _SEARCHING
        for known in self._writer.runs().values():
            place = known.folder and f"{known.folder}/"
            if place and known.folder not in found and not place.startswith(tuple(lost)):
                self._writer.drop_run(known)
        self._opened = {folder: one for folder, one in self._opened.items() if folder in found}
        in_ledger = set(self._in_ledger())
        due = self._due(found, in_ledger)
        first = not all(folder.searched for folder in self._status.folders)
        self._show(folders, len(due))
        if first:
            self._searched(self._status)
        # All of them are listed before the samples of the first one are read.
        announced = [(run, *parts) for run in due if (parts := self._announce(run, in_ledger))]
        for number, announcement in enumerate(announced):
            self._show(folders, len(announced) - number)
            if not self._stopping.is_set():
                self._read(*announcement)
        self._writer.sweep()
        self._show(folders, 0)
        return bool(due)

    def _search(self) -> tuple[list[WatchedFolder], dict[str, FoundRun], list[str]]:
        """Search all folders; also returns those that cannot be searched at the moment."""
        folders: list[WatchedFolder] = []
        found: dict[str, FoundRun] = {}
        lost: list[str] = []
        for url in self._urls:
            runs, error = list[FoundRun](), None
            try:
                runs = list(find_runs(url))
            except PlumblineError as raised:
                error = _line(raised)
                lost += [] if isinstance(raised, NoFolderError) else [f"{url.rstrip('/')}/"]
            found |= {run.folder: run for run in runs}
            folders.append(WatchedFolder(redact_address(url), True, len(runs), error))
        return folders, found, lost

    def _due(self, found: Mapping[str, FoundRun], in_ledger: Collection[str]) -> list[FoundRun]:
        """The runs that are to be read, the latest first."""
        known = {run.folder: run.incarnation for run in self._writer.runs().values()}

        def done(run: FoundRun) -> bool:
            opened = self._opened.get(run.folder)
            if opened is None or opened.stamp != run.stamp:
                return known.get(run.folder) == run.stamp
            shown = opened.run in in_ledger or known.get(run.folder) == run.stamp
            return shown or opened.error is not None

        due = [run for run in found.values() if not done(run)]
        return sorted(due, key=lambda run: run.changed_at, reverse=True)

    def _announce(
        self, found: FoundRun, in_ledger: Collection[str]
    ) -> tuple[FinishedRun, KnownRun, list[str]] | None:
        """Put a run into the index, still without samples, in the place of its earlier state.

        Returns:
            The run, its place in the index, and notes about what cannot be read.
        """
        notes: list[str] = []
        for before in self._writer.runs().values():
            if before.folder == found.folder:
                self._writer.drop_run(before)
        try:
            run = open_run(found.folder, unpublished=True)
            self._opened[found.folder] = _Opened(found.stamp, run.record.run)
            if run.record.run in in_ledger:
                return None
            name, report = self._name(run, found.folder), partial(_note, notes)
            known = add_run(run, self._writer, name, report, found.folder)
        except _UNREADABLE as error:
            self._opened[found.folder] = _Opened(found.stamp, error=_line(error))
            return None
        return run, known, notes

    def _read(self, found: FoundRun, run: FinishedRun, known: KnownRun, notes: list[str]) -> None:
        report = partial(_note, notes)
        try:
            if not run.folder.exists(artifacts.SUMMARY):
                report(_unfinished(run))
            if run.folder.exists(artifacts.VERDICTS) or run.record.state.published:
                load_samples(run, self._writer, known, report, self._go_on)
        except (DroppedRunError, _StoppedError):
            return
        except _UNREADABLE as error:
            report(error)
        with suppress(DroppedRunError):
            self._writer.finish_reading(known, found.stamp, notes)

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
        unreadable = [
            *((folder, one.error) for folder, one in self._opened.items() if one.error),
            *((folder, note) for folder, notes in self._writer.notes().items() for note in notes),
        ]
        listed = [Unreadable(redact_address(folder), why) for folder, why in unreadable[:_LISTED]]
        self._status = FoldersStatus(folders, waiting, listed, len(unreadable))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A folder as it was opened last: the id of its run, or why it cannot be shown."""

    stamp: str
    run: str | None = None
    error: str | None = None


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


# Search for runs below a folder


# Files that the index is made from; the others of a run may change.
_READ = (*artifacts.FILES, artifacts.CASES)
# Folders in a run's folder in which there is no run, but many files.
_WITHOUT_RUNS = {artifacts.QA_LOGS, artifacts.WANDB, "logs", "redis"}
# What filesystems call the version of a file.
_VERSION = ("mtime", "ino", "LastModified", "last_modified", "ETag", "etag", "updated", "created")


def find_runs(url: str) -> Iterator[FoundRun]:
    """Yield the runs below a folder, which may be a run's folder itself.

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
        found = fs.walk(root, detail=True)
        for path, folders, files in found:
            if artifacts.RUN in files:
                below = str(path)[len(str(root)) :].strip("/")
                yield _found(f"{url.rstrip('/')}/{below}" if below else url, files)
            for name in _left_out(root, folders, in_run=artifacts.RUN in files):
                del folders[name]


def _found(folder: str, files: Mapping[str, Mapping[str, object]]) -> FoundRun:
    infos = [(name, files[name]) for name in _READ if name in files]
    versions = [
        (name, info.get("size"), *(str(info.get(key)) for key in _VERSION)) for name, info in infos
    ]
    times = [info.get("mtime") for _, info in infos]
    return FoundRun(
        folder,
        hashlib.sha256(repr(versions).encode()).hexdigest(),
        max((one for one in times if isinstance(one, float)), default=0.0),
    )


def _left_out(
    root: str, folders: Mapping[str, Mapping[str, object]], *, in_run: bool
) -> Iterable[str]:
    return [
        name
        for name, info in folders.items()
        if name.startswith(".")
        or (in_run and name in _WITHOUT_RUNS)
        or (info.get("islink") and _leads_back(root, str(info["name"])))
    ]


def _leads_back(root: str, link: str) -> bool:
    """Whether a link leads to a folder that is searched anyway, or to one around it."""
    start, end = Path(root).resolve(), Path(link).resolve()
    return end.is_relative_to(start) or start.is_relative_to(end)


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

    Raises:
        DroppedRunError: The run was deleted from the index meanwhile.
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
