"""Contamination check: searches a training corpus of any size for evaluation problems."""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from services.data.contamination.documents import (
    RowCounter,
    RowError,
    read_lines,
    read_passages,
    read_rows,
)
from services.data.contamination.files import (
    DEFAULT_SIZES,
    BufferSizes,
    Corpus,
    Format,
    Part,
    find_corpus,
)
from services.data.contamination.index import EvalProblem, Index, build_index
from services.data.contamination.matching import Tally, tally_documents
from services.data.contamination.report import ContaminationReport, ReportLimits, make_report
from shared.errors import DataError, data_error

_KEPT_BYTES = 60_000_000
ProgressCallback = Callable[[int, int], None]
_READERS = {Format.JSONL: read_lines, Format.PARQUET: read_rows, Format.TEXT: read_passages}


def check_contamination(
    problems: Sequence[EvalProblem],
    corpora: Sequence[str],
    *,
    size: int = 13,
    min_share: float = 0.3,
    min_solution_share: float = 0.6,
    max_problems: int = 10,
    processes: int = 1,
    progress: ProgressCallback | None = None,
    sizes: BufferSizes = DEFAULT_SIZES,
) -> ContaminationReport:
    """Search a corpus for the n-grams of problems. Each file is read once, in parts.

    The report does not depend on the number of processes.

    Args:
        problems: Problems that must not be in the corpus.
        corpora: Files, folders and globs, local or any fsspec URL: JSONL, parquet or plain text.
        size: Words per n-gram. A text with fewer is one n-gram as a whole, if it is specific.
        min_share: A problem is contaminated if one document has this share of its statement's
            n-grams,
        min_solution_share: or this share of a solution's or the tests' n-grams. Of a short text,
            nearly all n-grams are necessary, see `ReportLimits`.
        max_problems: N-grams in more problems than this are common phrases and do not count.
        processes: Number of worker processes; each takes about 150 MB.
        progress: Called after each part with the bytes read so far and the total.
        sizes: Buffer sizes.

    Raises:
        DataError: There are no problems, or a part of the corpus cannot be read; names file and
            line.
    """
    if not problems:
        raise DataError("no evaluation problems given; name at least one prepared data set")
    corpus = find_corpus(corpora, sizes)
    scanner = Scanner(build_index(problems, size, max_problems), sizes)
    with closing(_scan(scanner, corpus.parts, processes)) as results:
        tally = _merge(corpus, results, progress)
    limits = ReportLimits(size, min_share, min_solution_share, max_problems)
    return make_report(problems, limits, corpus, scanner.index, tally)


# Scanning of one part


@dataclass(frozen=True, slots=True)
class RowFailure:
    """An unusable row; ``row`` counts from the start of the part."""

    row: int
    cause: str


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Result for a part with ``rows`` rows or lines; row numbers are relative to the part."""

    part: Part
    rows: int
    tally: Tally
    failure: RowFailure | None = None


@dataclass(frozen=True, slots=True)
class Scanner:
    """Scans parts of a corpus for the n-grams of an index."""

    index: Index
    sizes: BufferSizes

    def scan(self, part: Part) -> ScanResult:
        """Scan a part. An invalid row is returned, because only the caller knows its line number.

        Raises:
            DataError: The file cannot be read.
        """
        _keep_freed_memory()
        counter = RowCounter()
        documents = _READERS[part.format](part, counter, self.sizes)
        try:
            tally = tally_documents(self.index, part.path, documents, self.sizes)
        except RowError as error:
            return ScanResult(part, counter.rows, Tally(), RowFailure(error.row, error.cause))
        if part.format is Format.TEXT:
            # A text file is one document; it is split into passages only to bound memory.
            tally.documents = 1
            tally.hit_documents = Counter(dict.fromkeys(tally.hit_documents, 1))
        return ScanResult(part, counter.rows, tally)


def _keep_freed_memory() -> None:
    """Let the allocator of the C library keep what the arrays of a batch free.

    glibc returns freed memory to the system above twice the largest block freed so far; fetching it
    again for each batch took a fifth of the time. The block is never written, so it costs nothing.
    """
    np.empty(_KEPT_BYTES // 2, np.uint8)


# All parts


def _scan(
    scanner: Scanner, parts: Sequence[Part], processes: int
) -> Generator[ScanResult, None, None]:
    """Yield the results in the order of the parts."""
    processes = min(processes, len(parts))
    if processes <= 1:
        yield from map(scanner.scan, parts)
        return
    # Spawned, not forked: this process may have threads. Each worker receives the index once.
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _init_worker, initargs=(scanner,)
    )
    try:
        yield from pool.map(_scan_in_worker, parts)
    except BrokenProcessPool:
        cause = "a worker process was killed while it checked the corpus, perhaps out of memory"
        raise DataError(f"{cause}; try again with fewer processes") from None
    finally:
        pool.shutdown(cancel_futures=True)


_scanner: Scanner


def _init_worker(scanner: Scanner) -> None:
    global _scanner
    # A keyboard interrupt reaches every process; only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _scanner = scanner


def _scan_in_worker(part: Part) -> ScanResult:
    return _scanner.scan(part)


def _merge(
    corpus: Corpus, results: Iterator[ScanResult], progress: ProgressCallback | None
) -> Tally:
    tally = Tally()
    rows: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    done = 0
    for scanned in results:
        path = scanned.part.path
        if scanned.failure:
            row = rows[path] + scanned.failure.row
            raise data_error(f"{path}:{row}", scanned.failure.cause)
        tally.merge(scanned.tally, rows[path])
        rows[path] += scanned.rows
        texts[path] += scanned.tally.texts
        done += scanned.part.size
        if progress:
            progress(done, corpus.size)
    for path, count in texts.items():
        if not count:
            raise data_error(path, "has no text; exclude the file, or fetch it again")
    return tally
