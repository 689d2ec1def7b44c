"""Contamination check: searches a training corpus of any size for evaluation problems."""

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate

from services.data.contamination.corpus import (
    DEFAULT_SIZES,
    BufferSizes,
    Chunk,
    CorpusFile,
    Format,
    find_corpus,
    read_chunks,
    read_documents,
)
from services.data.contamination.index import Index, Tally
from services.data.contamination.report import ContaminationReport, ReportLimits, make_report
from services.data.records import ProblemText
from shared.errors import DataError, data_error

ProgressCallback = Callable[[int, int], None]


def check_contamination(
    problems: Sequence[ProblemText],
    corpora: Sequence[str],
    *,
    size: int = 13,
    min_share: float = 0.3,
    max_problems: int = 10,
    processes: int = 1,
    progress: ProgressCallback | None = None,
    sizes: BufferSizes = DEFAULT_SIZES,
) -> ContaminationReport:
    """Search a corpus for the n-grams of problems. Each file is read once, in chunks.

    The report does not depend on the number of processes.

    Args:
        problems: Problems that must not be in the corpus.
        corpora: Files, folders and globs, local or any fsspec URL: JSONL, parquet or plain text.
        size: Words per n-gram. A text with fewer is one n-gram as a whole, if it is specific.
        min_share: A problem is contaminated if one document has this share of its statement's
            n-grams, or 0.6 of a solution's. Of a short text, nearly all n-grams are necessary, see
            `ReportLimits`.
        max_problems: N-grams in more problems than this are common phrases and do not count.
        processes: Number of worker processes.
        progress: Called after each chunk with the bytes read so far and the total.
        sizes: Buffer sizes.

    Raises:
        DataError: There are no problems, or a file of the corpus cannot be read; names file and
            line.
    """
    if not problems:
        raise DataError("no evaluation problems given; name at least one prepared data set")
    files, skipped = find_corpus(corpora)
    index = Index(problems, size, max_problems)
    chunks = (chunk for file in files for chunk in read_chunks(file, sizes))
    tally = _merge(files, _scan(index, sizes, chunks, processes), progress)
    limits = ReportLimits(size, min_share, max_problems)
    return make_report(problems, limits, files, skipped, index, tally)


def _merge(
    files: Sequence[CorpusFile],
    results: Iterable[tuple[Chunk, Tally]],
    progress: ProgressCallback | None,
) -> Tally:
    total = Tally()
    *starts, total_size = accumulate((file.size for file in files), initial=0)
    before = dict(zip(files, starts, strict=True))
    texts = Counter[CorpusFile]()
    hits: dict[CorpusFile, set[int]] = {}
    for chunk, tally in results:
        file = chunk.file
        texts[file] += tally.texts
        if file.format is Format.TEXT:
            # A text file is one document; it is split into passages only to bound memory.
            tally.documents = int(file not in hits)
            seen = hits.setdefault(file, set())
            tally.hits = Counter(tally.hits.keys() - seen)
            seen.update(tally.hits)
        total.documents += tally.documents
        total.hits.update(tally.hits)
        for match in tally.best.values():
            total.add(match)
        if progress:
            progress(before[file] + int(chunk.done * file.size), total_size)
    for file in files:
        if not texts[file]:
            raise data_error(file.path, "has no text; exclude the file, or fetch it again")
    return total


def _scan(
    index: Index, sizes: BufferSizes, chunks: Iterator[Chunk], processes: int
) -> Iterator[tuple[Chunk, Tally]]:
    """Yield the results in the order of the chunks; few chunks are in memory at a time."""
    if processes <= 1:
        yield from ((chunk, _tally(index, sizes, chunk)) for chunk in chunks)
        return
    # Spawned, not forked: this process may have threads. Each worker receives the index once.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _init_worker, initargs=(index, sizes))
    pending: deque[tuple[Chunk, Future[Tally]]] = deque()
    try:
        for chunk in chunks:
            pending.append((chunk, pool.submit(_tally_in_worker, chunk)))
            if len(pending) > 2 * processes:
                done, future = pending.popleft()
                yield done, future.result()
        yield from ((chunk, future.result()) for chunk, future in pending)
    except BrokenProcessPool:
        # Python 3.11.2 (Debian) would wait for a worker to read the chunks that are left.
        pool._call_queue._reader.close()  # type: ignore[attr-defined]
        cause = "a worker process was killed while it checked the corpus, perhaps out of memory"
        raise DataError(f"{cause}; try again with fewer processes") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _tally(index: Index, sizes: BufferSizes, chunk: Chunk) -> Tally:
    return index.tally(chunk.file.path, read_documents(chunk, sizes))


_worker: tuple[Index, BufferSizes]


def _init_worker(index: Index, sizes: BufferSizes) -> None:
    global _worker
    # A keyboard interrupt reaches every process; only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _worker = index, sizes


def _tally_in_worker(chunk: Chunk) -> Tally:
    return _tally(*_worker, chunk)
