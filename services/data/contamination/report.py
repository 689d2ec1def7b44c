"""Contamination report: overlap of each evaluation problem with the corpus."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from services.data.contamination.files import Corpus
from services.data.contamination.index import EvalProblem, Index, min_words
from services.data.contamination.matching import Match, Tally


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Thresholds of the check; see `check_contamination`.

    The default shares are far from the measured values on both sides. HumanEval, MBPP, 40 problems
    of CodeContests, answers to them and 110 MB of unrelated code have less than 0.1 of any other
    prompt and less than 0.2 of any other solution. Of 164 answers that repeat HumanEval's prompt,
    160 have over 0.9 of it, and all at least 0.6. The limit for solutions is higher, because
    independent solutions of similar problems often look alike.
    """

    size: int
    min_share: float
    min_solution_share: float
    max_problems: int


@dataclass(frozen=True, slots=True)
class Hit:
    """The document with the largest share of a text; on a tie, the first one.

    ``row`` is the row of a parquet file, the line of JSONL, or the first line of the passage in
    plain text; all count from 1. ``part`` is the problem's ``prompt`` or a ``solution``.
    ``excerpt`` has matching words in their normalized form.
    """

    path: str
    row: int
    part: str
    ngrams: int
    share: float
    excerpt: str


@dataclass(frozen=True, slots=True)
class CorpusOverlap:
    """Indexed n-grams of a problem's prompt, or of all its solutions, and how many were found.

    ``found`` of them are in the corpus; ``hit`` is the document with the largest share.
    """

    ngrams: int
    found: int
    hit: Hit | None

    @property
    def share(self) -> float:
        return self.found / self.ngrams if self.ngrams else 0.0


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """Result for a problem.

    ``documents`` is the number of documents with at least one of its n-grams; ``unchecked`` lists
    texts without indexed n-grams, with the reason.
    """

    dataset: str
    problem_id: str
    contaminated: bool
    prompt: CorpusOverlap
    solutions: CorpusOverlap
    documents: int
    unchecked: tuple[str, ...]

    @property
    def share(self) -> float:
        """The largest share of one text in one document."""
        return max(
            (part.hit.share for part in (self.prompt, self.solutions) if part.hit), default=0
        )


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
        unchecked = sum(not one.prompt.ngrams + one.solutions.ngrams for one in self.problems)
        counts = {"contaminated": len(self.contaminated), "unchecked": unchecked}
        return {"counts": {"problems": len(self.problems), **counts}, **asdict(self)}


# Computation

_EXCERPT_WORDS = 40
_PROMPT = "prompt"


def make_report(
    problems: Sequence[EvalProblem],
    limits: ReportLimits,
    corpus: Corpus,
    index: Index,
    tally: Tally,
) -> ContaminationReport:
    builder = _ReportBuilder(limits, index, tally)
    reports = [builder.problem(number, problem) for number, problem in enumerate(problems)]
    reports.sort(key=lambda one: (-one.share, one.dataset, one.problem_id))
    return ContaminationReport(
        limits=limits,
        files=corpus.files,
        documents=tally.documents,
        bytes=corpus.size,
        skipped=corpus.skipped,
        problems=tuple(reports),
    )


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
        prompt = [text for text in texts if self._index.texts[text].part == _PROMPT]
        solutions = [text for text in texts if text not in prompt]
        prompt_overlap, solution_overlap = self._overlap(prompt), self._overlap(solutions)
        return ProblemReport(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            contaminated=self._is_contaminated(texts),
            prompt=prompt_overlap,
            solutions=solution_overlap,
            documents=self._tally.hit_documents[number],
            unchecked=tuple(
                self._unchecked_reason(text) for text in texts if not self._ngram_count(text)
            ),
        )

    def _is_contaminated(self, texts: Sequence[int]) -> bool:
        return any(
            match.share >= self._threshold(text)
            for text in texts
            if (match := self._tally.best.get(text))
        )

    def _threshold(self, number: int) -> float:
        """Minimum share of contamination; infinite for short solutions, which are only reported.

        A prompt of 8 words is a specific sentence, but a solution of 8 words is an idiom: Euclid's
        algorithm, a solution in HumanEval, is in any large code base.
        """
        text = self._index.texts[number]
        if text.part == _PROMPT:
            return self._limits.min_share
        return self._limits.min_solution_share if text.length == self._limits.size else math.inf

    def _ngram_count(self, text: int) -> int:
        return int(self._index.ngram_counts[text])

    def _overlap(self, texts: Sequence[int]) -> CorpusOverlap:
        matches = [match for text in texts if (match := self._tally.best.get(text))]
        best = max(matches, key=lambda match: match.share, default=None)
        return CorpusOverlap(
            ngrams=sum(self._ngram_count(text) for text in texts),
            found=sum(self._found[text] for text in texts),
            hit=self._hit(best) if best else None,
        )

    def _hit(self, match: Match) -> Hit:
        return Hit(
            path=match.path,
            row=match.row,
            part=self._index.texts[match.text].part,
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
        if text.length:
            return f"{text.part}: only phrases of more than {self._limits.max_problems} problems"
        least = min_words(self._limits.size)
        return f"{text.part}: {len(text.words)} words, fewer than {least} are too short to check"


def _longest_run(positions: Sequence[int]) -> tuple[int, int]:
    """Return start and length of the longest run of successive numbers; on a tie, the first."""
    best = run = (positions[0], 0)
    for position in positions:
        start, count = run
        run = (start, count + 1) if position == start + count else (position, 1)
        best = max(best, run, key=lambda one: one[1])
    return best
