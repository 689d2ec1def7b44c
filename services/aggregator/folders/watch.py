"""Finished runs of folders in the index: added, read again when they change, dropped when removed.

A run that is in the ledger, too, is shown from there.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from services.aggregator.folders.load import add_run, load_samples, progress, run_facts
from services.aggregator.folders.scan import FoundRun, NoFolderError, find_runs
from services.aggregator.index.database import Database
from services.aggregator.index.writer import DroppedRunError, IndexWriter, KnownRun
from shared import artifacts
from shared.errors import OutputError, PlumblineError
from shared.finished_run import FinishedRun, open_run
from shared.redaction import redact, redact_address
from shared.schemas import is_encodable
from shared.service.logs import get_logger
from shared.text import shorten_end

log = get_logger(__name__)

# Seconds without a change after which a run's files are read, unless two scans found them equal.
_SETTLED = 2.0
# Share of the time that may be spent on searching.
_SEARCHING = 0.05
# Notes on one run; a damaged file could have one on each line.
_MOST_NOTES = 20
_LISTED = 100
_LONGEST_NOTE = 500
_LONGEST_NAME = 1000


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
        settled: float = _SETTLED,
    ) -> None:
        """Watch folders.

        Args:
            urls: Local paths or fsspec URLs.
            database: The index.
            in_ledger: Returns the ids of the runs that are shown from the ledger.
            searched: Called when all folders were searched for the first time.
            settled: Seconds without a change after which a run's files are read.
        """
        self._urls = list(dict.fromkeys(urls))
        self._writer = IndexWriter(database)
        self._in_ledger = in_ledger
        self._searched = searched
        self._settled = settled
        self._stopping = threading.Event()
        self._last: dict[str, str] = {}
        self._ids: dict[str, tuple[str, str]] = {}
        self._failed: dict[str, tuple[str, Unreadable]] = {}
        self._search_at = 0.0
        self._status = FoldersStatus([WatchedFolder(redact_address(url)) for url in self._urls])

    @property
    def status(self) -> FoldersStatus:
        """What was found last; thread-safe."""
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
        self._drop(lambda run: run.folder not in found and not _below(run.folder or "", lost))
        in_ledger = set(self._in_ledger())
        due = self._due(found, in_ledger)
        self._failed = {folder: why for folder, why in self._failed.items() if folder in found}
        self._ids = {folder: why for folder, why in self._ids.items() if folder in found}
        before = self._status
        self._show(folders, len(due))
        if not all(folder.searched for folder in before.folders):
            self._searched(self._status)
        # All of them are listed before the samples of the first one are read.
        opened = [one for run in due if (one := self._announce(run, in_ledger)) is not None]
        for place, one in enumerate(opened):
            self._show(folders, len(opened) - place)
            if not self._stopping.is_set():
                self._read(one)
        self._drop(lambda run: run.hidden)
        self._show(folders, 0)
        return bool(due)

    def _search(self) -> tuple[list[WatchedFolder], dict[str, FoundRun], list[str]]:
        """Search all folders; also returns those that cannot be searched at the moment."""
        folders: list[WatchedFolder] = []
        found: dict[str, FoundRun] = {}
        lost: list[str] = []
        for url in self._urls:
            shown, before = redact_address(url), len(found)
            try:
                found |= {run.folder: run for run in find_runs(url)}
                folders.append(WatchedFolder(shown, True, len(found) - before))
            except NoFolderError as error:
                folders.append(WatchedFolder(shown, True, error=_line(error)))
            except PlumblineError as error:
                lost.append(url)
                folders.append(WatchedFolder(shown, True, error=_line(error)))
        return folders, found, lost

    def _drop(self, unwanted: Callable[[KnownRun], bool]) -> None:
        for run in self._writer.runs().values():
            if run.folder is not None and (run.hidden or unwanted(run)):
                if self._stopping.is_set():
                    return
                self._writer.drop_run(run)

    def _due(self, found: Mapping[str, FoundRun], in_ledger: Collection[str]) -> list[FoundRun]:
        """The runs that are to be read, the latest first."""
        known = {
            run.folder: run.incarnation for run in self._writer.runs().values() if not run.hidden
        }
        due = [
            run
            for run in found.values()
            if known.get(run.folder) != run.stamp
            and self._failed.get(run.folder, ("",))[0] != run.stamp
            and not self._is_in(in_ledger, run)
            and (run.settled(self._settled) or self._last.get(run.folder) == run.stamp)
        ]
        self._last = {run.folder: run.stamp for run in found.values()}
        return sorted(due, key=lambda run: run.changed_at, reverse=True)

    def _is_in(self, in_ledger: Collection[str], run: FoundRun) -> bool:
        """Whether the run is known to be shown from the ledger."""
        stamp, name = self._ids.get(run.folder, ("", ""))
        return stamp == run.stamp and name in in_ledger

    def _announce(self, found: FoundRun, in_ledger: Collection[str]) -> "_OpenedRun | None":
        """Put a run into the index, still without samples, in the place of its earlier state."""
        notes: list[str] = []
        for before in self._writer.runs().values():
            if before.folder == found.folder:
                self._writer.hide_run(before)
        with self._blaming(found):
            run = open_run(found.folder, unpublished=True)
            self._ids[found.folder] = found.stamp, run.record.run
            if run.record.run in in_ledger:
                return None
            facts = run_facts(run, partial(_note, notes))
            name = self._name(run, found.folder)
            number = add_run(self._writer, run, name, found.folder)
            known = KnownRun(number, name, "", "0", run.record.state, found.folder)
            self._writer.set_facts(known, progress(run.record, name), facts)
            self._failed.pop(found.folder, None)
            return _OpenedRun(found, known, run, notes)
        return None

    def _read(self, one: "_OpenedRun") -> None:
        folder = one.run.folder
        try:
            with self._blaming(one.found, one.notes):
                if not folder.exists(artifacts.SUMMARY):
                    _note(one.notes, _unfinished(one.run))
                if folder.exists(artifacts.VERDICTS) or one.run.record.state.published:
                    report = partial(_note, one.notes)
                    load_samples(one.run, self._writer, one.known, report, self._go_on)
            self._writer.finish_reading(one.known, one.found.stamp, one.notes)
        except (DroppedRunError, _StoppedError):
            return

    def _go_on(self, _batch: object) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    @contextmanager
    def _blaming(self, found: FoundRun, notes: list[str] | None = None) -> Iterator[None]:
        """Note what reading a run raises; without notes, the run cannot be shown at all."""
        try:
            yield
        except (DroppedRunError, _StoppedError, sqlite3.OperationalError):
            raise
        except Exception as error:
            shown = redact_address(found.folder)
            if not isinstance(error, PlumblineError | OSError):
                log.exception("a run cannot be read", folder=shown)
            if notes is not None:
                _note(notes, error)
            else:
                self._failed[found.folder] = found.stamp, Unreadable(shown, _line(error))

    def _name(self, run: FinishedRun, folder: str) -> str:
        """The run's id, with its folder if another run or a copy has the id."""
        taken = self._writer.runs()
        wanted = run.record.run
        usable = 0 < len(wanted) <= _LONGEST_NAME and is_encodable(wanted) and "\0" not in wanted
        if usable and wanted not in taken:
            return wanted
        shown = redact_address(folder)
        return f"{wanted} ({shown})" if usable else shown

    def _show(self, folders: Sequence[WatchedFolder], waiting: int) -> None:
        notes = [
            Unreadable(redact_address(folder), note)
            for folder, texts in self._writer.notes().items()
            for note in texts
        ]
        failed = [unreadable for _, unreadable in self._failed.values()]
        unreadable = [*failed, *notes]
        self._status = FoldersStatus(folders, waiting, unreadable[:_LISTED], len(unreadable))


@dataclass(frozen=True, slots=True)
class _OpenedRun:
    found: FoundRun
    known: KnownRun
    run: FinishedRun
    notes: list[str]


def _unfinished(run: FinishedRun) -> PlumblineError:
    if run.record.state.published:
        return OutputError(f"no {artifacts.SUMMARY}: its figures are missing")
    return OutputError("the run is not finished: repeat its command, which resumes it")


def _below(folder: str, urls: Iterable[str]) -> bool:
    return any(folder == url or folder.startswith(f"{url.rstrip('/')}/") for url in urls)


def _note(notes: list[str], error: Exception) -> None:
    """Add a message about a run, of which the first ones are kept."""
    if len(notes) <= _MOST_NOTES:
        notes.append(_line(error) if len(notes) < _MOST_NOTES else "and further lines")


def _line(error: Exception) -> str:
    """An error in one short line without secrets."""
    text = str(error) if isinstance(error, PlumblineError) else f"{type(error).__name__}: {error}"
    return shorten_end(" ".join(redact(text).split()), _LONGEST_NOTE)
