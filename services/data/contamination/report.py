"""Contamination report: overlap of each evaluation problem with the corpus."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from services.data.contamination.files import Corpus
from services.data.contamination.index import (
    PROSE,
    EvalProblem,
    EvalText,
    Index,
    Part,
    View,
    min_words,
)
from services.data.contamination.matching import Match, Tally

NEARLY_ALL = 0.95
ENOUGH_NGRAMS = 100


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Thresholds of the check; see `check_contamination`, and docs/data.md for their figures."""

    size: int
    min_share: float
    min_solution_share: float
    max_problems: int

    def is_enough(self, text: EvalText, match: Match) -> bool:
        """Whether a document has so much of a text that its problem is contaminated.

        Two problems of one kind may differ in a few words or tokens. So a small number of n-grams
        is enough only if it is nearly all of them.
        """
        statement = text.part is Part.STATEMENT
        min_share = self.min_share if statement else self.min_solution_share
        enough = self.size if text.view is View.WORDS and statement else ENOUGH_NGRAMS
        many = len(match.ngrams) >= enough and text.view not in (View.PHRASES, View.GAPPED)
        return match.share >= (min_share if many else max(min_share, NEARLY_ALL))


@dataclass(frozen=True, slots=True)
class Hit:
    """The document with the largest share of a text; on a tie, the first one.

    ``row`` is the row of a parquet file, the line of JSONL, or the first line of the passage in
    plain text; all count from 1. ``text`` is the problem's ``statement``, the
    ``statement's prose``, a ``solution`` with its number, or its ``tests``; ``view`` the form in
    which it was found. ``excerpt`` has matching words in their normalized form.
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

    ``ngrams`` of its texts are searched, ``found`` of them are in the corpus; ``hit`` is the
    document with the largest share. ``contaminated`` if a document has enough of one text.
    """

    part: Part
    contaminated: bool
    ngrams: int
    found: int
    hit: Hit | None

    @property
    def share(self) -> float:
        """The largest share of one text in one document."""
        return self.hit.share if self.hit else 0.0


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """Result for a problem.

    ``documents`` is the number of documents with at least one of its n-grams; ``unchecked`` lists
    texts without indexed n-grams, with the reason, and ``missing`` the parts that the data lack.
    """

    dataset: str
    problem_id: str
    contaminated: bool
    statement: PartOverlap
    solutions: PartOverlap
    tests: PartOverlap
    documents: int
    unchecked: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def parts(self) -> tuple[PartOverlap, ...]:
        return self.statement, self.solutions, self.tests

    @property
    def share(self) -> float:
        """The largest share of one text in one document."""
        return max(part.share for part in self.parts)


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

    def document(self) -> dict[str, Any]:
        """Convert to the JSON document, with the counts of problems first."""
        unchecked = sum(not any(part.ngrams for part in one.parts) for one in self.problems)
        counts = {"contaminated": len(self.contaminated), "unchecked": unchecked}
        parts = {part: self.count(part) for part in Part}
        problems = {"problems": len(self.problems), **counts, "by_part": parts}
        return {"counts": problems, **asdict(self)}

    def count(self, part: Part) -> int:
        """Count the problems of which a document has enough of this part."""
        return sum(
            overlap.contaminated
            for problem in self.problems
            for overlap in problem.parts
            if overlap.part is part
        )


# Computation

_EXCERPT_WORDS = 40


def make_report(
    problems: Sequence[EvalProblem],
    limits: ReportLimits,
    corpus: Corpus,
    index: Index,
    tally: Tally,
) -> ContaminationReport:
    builder = _ReportBuilder(limits, index, tally)
    reports = [builder.problem(number, problem) for number, problem in enumerate(problems)]
    reports.sort(key=_rank)
    return ContaminationReport(
        limits=limits,
        files=corpus.files,
        documents=tally.documents,
        bytes=corpus.size,
        skipped=corpus.skipped,
        problems=tuple(reports),
    )


def _rank(report: ProblemReport) -> tuple[object, ...]:
    return (not report.contaminated, -report.share, report.dataset, report.problem_id)


class _ReportBuilder:
    def __init__(self, limits: ReportLimits, index: Index, tally: Tally) -> None:
        self._limits = limits
        self._index = index
        self._tally = tally
        self._texts: dict[int, list[int]] = defaultdict(list)
        for number, text in enumerate(index.texts):
            self._texts[text.problem].append(number)
        self._found = Counter(
            text for ngram in tally.found for text in index.postings.texts_of(ngram)
        )

    def problem(self, number: int, problem: EvalProblem) -> ProblemReport:
        texts = self._texts[number]
        statement, solutions, tests = (self._overlap(part, texts) for part in Part)
        return ProblemReport(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            contaminated=any(part.contaminated for part in (statement, solutions, tests)),
            statement=statement,
            solutions=solutions,
            tests=tests,
            documents=self._tally.hit_documents[number],
            unchecked=tuple(self._unchecked(texts)),
            missing=problem.missing,
        )

    def _overlap(self, part: Part, of_problem: Sequence[int]) -> PartOverlap:
        texts = [text for text in of_problem if self._index.texts[text].part is part]
        matches = [match for text in texts if (match := self._tally.best.get(text))]
        best = max(matches, key=lambda match: (self._is_enough(match), match.share), default=None)
        return PartOverlap(
            part=part,
            contaminated=best is not None and self._is_enough(best),
            ngrams=sum(self._ngram_count(text) for text in texts),
            found=sum(self._found[text] for text in texts),
            hit=self._hit(best) if best else None,
        )

    def _is_enough(self, match: Match) -> bool:
        return self._limits.is_enough(self._index.texts[match.text], match)

    def _ngram_count(self, text: int) -> int:
        return int(self._index.ngram_counts[text])

    def _unchecked(self, texts: Sequence[int]) -> Iterator[str]:
        """Name the texts that are not searched for, or not without their names, with the reason."""
        searched = {
            self._index.texts[text].name
            for text in texts
            if self._ngram_count(text) and not self._index.texts[text].named
        }
        reasons = {
            self._index.texts[text].name: self._unchecked_reason(text)
            for text in sorted(texts, key=lambda text: (self._index.texts[text].named, -text))
        }
        for name, reason in reversed(reasons.items()):
            if name not in searched and name != PROSE:
                yield reason

    def _hit(self, match: Match) -> Hit:
        return Hit(
            path=match.path,
            row=match.row,
            text=self._index.texts[match.text].name,
            view=self._index.texts[match.text].view,
            ngrams=len(match.ngrams),
            share=match.share,
            excerpt=self._excerpt(match),
        )

    def _excerpt(self, match: Match) -> str:
        """Return the words of the longest run of matching n-grams, truncated."""
        text = self._index.texts[match.text]
        start, count = _longest_run(sorted(self._position(one, match) for one in match.ngrams))
        words = text.words[start : start + min(count - 1 + text.length, _EXCERPT_WORDS)]
        return b" ".join(words).decode("utf-8", "replace")

    def _position(self, ngram: int, match: Match) -> int:
        postings = self._index.postings
        return postings.positions_of(ngram)[postings.texts_of(ngram).index(match.text)]

    def _unchecked_reason(self, number: int) -> str:
        text = self._index.texts[number]
        if text.named:
            return f"{text.name}: {len(text.words)} words, only searched for with its own names"
        if text.length:
            return f"{text.name}: only phrases of more than {self._limits.max_problems} problems"
        least = min_words(self._limits.size)
        if len(text.words) < least:
            return (
                f"{text.name}: {len(text.words)} words, fewer than {least} are too short to check"
            )
        return f"{text.name}: {len(text.words)} words, not specific enough to check"


def _longest_run(positions: Sequence[int]) -> tuple[int, int]:
    """Return start and length of the longest run of successive numbers; on a tie, the first."""
    best = run = (positions[0], 0)
    for position in positions:
        start, count = run
        run = (start, count + 1) if position == start + count else (position, 1)
        best = max(best, run, key=lambda one: one[1])
    return best
