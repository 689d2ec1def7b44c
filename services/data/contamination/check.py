"""Contamination check: searches a training corpus of any size for evaluation problems."""

import multiprocessing
import signal
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby

from services.data.contamination.corpus import (
    Chunk,
    CorpusFile,
    Format,
    find_corpus,
    read_chunks,
    read_documents,
)
from services.data.contamination.index import EvalText, Index, Match, Part, Tally, View
from services.data.records import ProblemText
from shared.errors import DataError, data_error
from shared.redaction import redact_address

ProgressCallback = Callable[[int, int], None]
_NEARLY_ALL = 0.95
_ENOUGH_NGRAMS = 100
_EXCERPT_WORDS = 40


# Report


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Thresholds of the check; see `check_contamination`, and docs/data.md for their figures."""

    size: int
    min_share: float
    max_problems: int
    min_solution_share: float = 0.6

    def is_enough(self, text: EvalText, match: Match) -> bool:
        """Whether a document has so much of a text that its problem is contaminated.

        Two problems of one kind may differ in a few words or tokens. So a small number of n-grams
        is enough only if it is nearly all of them.
        """
        statement = text.part is Part.STATEMENT
        min_share = self.min_share if statement else self.min_solution_share
        enough = self.size if text.view is View.WORDS and statement else _ENOUGH_NGRAMS
        many = len(match.positions) >= enough and text.view is not View.PHRASES
        return match.share >= (min_share if many else max(min_share, _NEARLY_ALL))


@dataclass(frozen=True, slots=True)
class Hit:
    """The document with the largest share of a text; on a tie, the first one.

    ``row`` is the row of a parquet file, the line of JSONL, or the first line of the passage in
    plain text; all count from 1. ``text`` is the problem's ``statement`` or a ``solution`` with its
    number, ``view`` the form in which it was found. ``excerpt`` has matching words in their
    normalized form.
    """

    path: str
    row: int
    text: str
    view: View
    ngrams: int
    share: float
    excerpt: str


@dataclass(frozen=True, slots=True)
class PartOverlap:
    """Overlap of one part of a problem with the corpus.

    ``ngrams`` of its texts are searched; ``hit`` is the document with the largest share of one
    text. ``contaminated`` if a document has enough of one text.
    """

    part: Part
    contaminated: bool
    ngrams: int
    hit: Hit | None

    @property
    def share(self) -> float:
        return self.hit.share if self.hit else 0.0


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """Result for a problem.

    ``documents`` is the number of documents with at least one of its n-grams; ``unchecked`` lists
    texts without indexed n-grams, with the reason.
    """

    dataset: str
    problem_id: str
    contaminated: bool
    statement: PartOverlap
    solutions: PartOverlap
    documents: int
    unchecked: tuple[str, ...]

    @property
    def parts(self) -> tuple[PartOverlap, ...]:
        return self.statement, self.solutions


@dataclass(frozen=True, slots=True)
class ContaminationReport:
    """Result for all problems, by descending share. ``bytes`` is the stored size of the corpus."""

    limits: ReportLimits
    files: int
    documents: int
    bytes: int
    skipped: tuple[str, ...]
    problems: tuple[ProblemReport, ...]

    @property
    def contaminated(self) -> tuple[ProblemReport, ...]:
        return tuple(problem for problem in self.problems if problem.contaminated)

    def document(self) -> dict[str, object]:
        """Convert to the JSON document, with the counts of problems first."""
        unchecked = sum(not any(part.ngrams for part in problem.parts) for problem in self.problems)
        counts = {"contaminated": len(self.contaminated), "unchecked": unchecked}
        parts = {part: self.count(part) for part in Part}
        problems = {"problems": len(self.problems), **counts, "by_part": parts}
        return {"counts": problems, **asdict(self)}

    def count(self, part: Part) -> int:
        """Count the problems of which a document has enough of this part."""
        return sum(getattr(problem, part).contaminated for problem in self.problems)


def _report(
    number: int, problem: ProblemText, limits: ReportLimits, index: Index, tally: Tally
) -> ProblemReport:
    texts = index.of_problem[number]
    statement, solutions = (_overlap(part, texts, limits, index, tally) for part in Part)
    return ProblemReport(
        dataset=problem.dataset,
        problem_id=problem.problem_id,
        contaminated=statement.contaminated or solutions.contaminated,
        statement=statement,
        solutions=solutions,
        documents=tally.hits[number],
        unchecked=tuple(_unchecked(texts, problem, limits, index)),
    )


def _overlap(
    part: Part, of_problem: Sequence[int], limits: ReportLimits, index: Index, tally: Tally
) -> PartOverlap:
    texts = [number for number in of_problem if index.texts[number].part is part]
    matches = (tally.best[number] for number in texts if number in tally.best)
    ranked = [(limits.is_enough(index.texts[m.text], m), m.share, m) for m in matches]
    enough, _, best = max(ranked, key=lambda entry: entry[:2], default=(False, 0.0, None))
    return PartOverlap(
        part=part,
        contaminated=enough,
        ngrams=sum(index.counts[number] for number in texts),
        hit=_hit(index.texts[best.text], best) if best else None,
    )


def _unchecked(
    texts: Sequence[int], problem: ProblemText, limits: ReportLimits, index: Index
) -> Iterator[str]:
    """Describe the texts that are not searched for, or only with their own names."""
    if not problem.solutions:
        yield "the data have no solution of this problem"
    views: dict[str, list[int]] = defaultdict(list)
    for number in texts:
        views[index.texts[number].name].append(number)
    for name, numbers in views.items():
        searched = {index.texts[number].view for number in numbers if index.counts[number]}
        count = f"{name}: {len(index.texts[numbers[0]].words)} words"
        if searched == {View.PROGRAM}:
            yield f"{count}, only searched for with its own names"
        elif not searched and any(index.texts[number].ngrams for number in numbers):
            yield f"{name}: only phrases of more than {limits.max_problems} problems"
        elif not searched:
            yield f"{count}, not specific enough to check"


def _hit(text: EvalText, match: Match) -> Hit:
    runs = groupby(enumerate(match.positions), lambda pair: pair[1] - pair[0])
    longest = max(([at for _, at in run] for _, run in runs), key=len)
    words = text.words[longest[0] : longest[-1] + text.length][:_EXCERPT_WORDS]
    return Hit(
        path=redact_address(match.path),
        row=match.row,
        text=text.name,
        view=text.view,
        ngrams=len(match.positions),
        share=match.share,
        excerpt=" ".join(words).encode("utf-8", "replace").decode("utf-8"),
    )


# Check


def check_contamination(
    problems: Sequence[ProblemText],
    corpora: Sequence[str],
    *,
    size: int = 13,
    min_share: float = 0.3,
    max_problems: int = 10,
    processes: int = 1,
    progress: ProgressCallback | None = None,
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

    Raises:
        DataError: There are no problems, or a file of the corpus cannot be read; names file and
            line.
    """
    if not problems:
        raise DataError("no evaluation problems given; name at least one prepared data set")
    files, skipped = find_corpus(corpora)
    index = Index(problems, size, max_problems)
    chunks = (chunk for file in files for chunk in read_chunks(file))
    tally = _merge(files, _scan(index, chunks, processes), progress)
    limits = ReportLimits(size, min_share, max_problems)
    skipped = tuple(map(redact_address, skipped))
    reports = [_report(at, problem, limits, index, tally) for at, problem in enumerate(problems)]
    reports.sort(key=_order)
    stored = sum(file.size for file in files)
    return ContaminationReport(limits, len(files), tally.documents, stored, skipped, tuple(reports))


def _order(report: ProblemReport) -> tuple[object, ...]:
    share = max(part.share for part in report.parts)
    return not report.contaminated, -share, report.dataset, report.problem_id


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


def _scan(index: Index, chunks: Iterator[Chunk], processes: int) -> Iterator[tuple[Chunk, Tally]]:
    """Yield the results in the order of the chunks; few chunks are in memory at a time."""
    if processes <= 1:
        yield from ((chunk, _tally(index, chunk)) for chunk in chunks)
        return
    # Spawned, not forked: this process may have threads. Each worker receives the index once.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _init_worker, initargs=(index,))
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


def _tally(index: Index, chunk: Chunk) -> Tally:
    return index.tally(chunk.file.path, read_documents(chunk))


_index: Index


def _init_worker(index: Index) -> None:
    global _index
    # A keyboard interrupt reaches every process; only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _index = index


def _tally_in_worker(chunk: Chunk) -> Tally:
    return _tally(_index, chunk)
