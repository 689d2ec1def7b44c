"""Checks a training corpus of any size against evaluation problems."""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

from services.data.contamination.files import Corpus, Part, find_corpus
from services.data.contamination.findings import make_report
from services.data.contamination.index import Index, build_index
from services.data.contamination.problems import EvalProblem
from services.data.contamination.report import ContaminationReport, Limits
from services.data.contamination.scan import Scanned, scan_part
from services.data.contamination.tally import Tally
from shared.errors import DataError
from shared.reading import data_error

Progress = Callable[[int, int], None]


def check_contamination(
    problems: Sequence[EvalProblem],
    corpora: Sequence[str],
    *,
    size: int = 13,
    min_share: float = 0.3,
    min_solution_share: float = 0.8,
    max_problems: int = 10,
    processes: int = 1,
    progress: Progress | None = None,
) -> ContaminationReport:
    """Look for the n-grams of problems in a corpus, whose files are read once and in pieces.

    The report is the same for any number of processes.

    Args:
        problems: What must not be in the corpus.
        corpora: Files, folders and globs, local or any fsspec URL: JSONL, parquet or plain text.
        size: Words of an n-gram. A text with fewer, but at least 8, is one n-gram as a whole.
        min_share: A problem is contaminated where one document has this share of the n-grams of
            its prompt,
        min_solution_share: or this share of those of a solution.
        max_problems: n-grams in more problems than this are phrases, and do not count.
        processes: How many check at a time; each takes about 150 MB.
        progress: Called with the bytes that were read and all there are, now and then.

    Raises:
        DataError: No problems, or a part of the corpus cannot be read; names file and line.
    """
    if not problems:
        raise DataError("no evaluation problems given; name at least one prepared data set")
    corpus = find_corpus(corpora)
    index = build_index(problems, size, max_problems)
    with closing(_scan(index, corpus.parts, processes)) as results:
        tally = _merge(corpus, results, progress)
    limits = Limits(size, min_share, min_solution_share, max_problems)
    return make_report(problems, limits, corpus, index, tally)


def _scan(index: Index, parts: Sequence[Part], processes: int) -> Generator[Scanned, None, None]:
    """Yield the results in the order of the parts."""
    processes = min(processes, len(parts))
    if processes <= 1:
        yield from (scan_part(index, part) for part in parts)
        return
    # Not forked: this process may have threads. A child gets the index once.
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _begin, initargs=(index,)
    )
    try:
        yield from pool.map(_scan_here, parts)
    except BrokenProcessPool:
        cause = "a process that checked the corpus was killed, perhaps for want of memory"
        raise DataError(f"{cause}; try again with fewer processes") from None
    finally:
        pool.shutdown(cancel_futures=True)


_index: Index


def _begin(index: Index) -> None:
    global _index
    # An interrupt from the keyboard reaches every process; only the first has something to say.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _index = index


def _scan_here(part: Part) -> Scanned:
    return scan_part(_index, part)


def _merge(corpus: Corpus, results: Iterator[Scanned], progress: Progress | None) -> Tally:
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
            raise data_error(path, "holds no text; leave the file out, or fetch it again")
    return tally
