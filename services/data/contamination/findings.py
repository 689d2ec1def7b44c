"""From sums over a corpus to a report about each problem."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from services.data.contamination.files import Corpus
from services.data.contamination.index import Index
from services.data.contamination.problems import EvalProblem, shortest_length
from services.data.contamination.report import (
    ContaminationReport,
    Hit,
    Limits,
    Overlap,
    ProblemReport,
)
from services.data.contamination.tally import Match, Tally

_EXCERPT_WORDS = 40
_PROMPT = "prompt"


def make_report(
    problems: Sequence[EvalProblem], limits: Limits, corpus: Corpus, index: Index, tally: Tally
) -> ContaminationReport:
    findings = _Findings(limits, index, tally)
    reports = [findings.problem(number, problem) for number, problem in enumerate(problems)]
    reports.sort(key=lambda one: (-one.share, one.dataset, one.problem_id))
    return ContaminationReport(
        limits=limits,
        files=corpus.files,
        documents=tally.documents,
        bytes=corpus.size,
        skipped=corpus.skipped,
        problems=tuple(reports),
    )


class _Findings:
    def __init__(self, limits: Limits, index: Index, tally: Tally) -> None:
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
        about_prompt, about_solutions = self._overlap(prompt), self._overlap(solutions)
        return ProblemReport(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            contaminated=self._is_contaminated(texts),
            prompt=about_prompt,
            solutions=about_solutions,
            documents=self._tally.hit_documents[number],
            unchecked=tuple(self._why_unchecked(text) for text in texts if not self._own(text)),
        )

    def _is_contaminated(self, texts: Sequence[int]) -> bool:
        return any(
            match.share >= self._threshold(text)
            for text in texts
            if (match := self._tally.best.get(text))
        )

    def _threshold(self, number: int) -> float:
        """The share that makes a problem contaminated; short solutions are only reported.

        As a whole, a prompt of 8 words is somebody's sentence, but a solution of 8 words is an
        idiom: of HumanEval, Euclid's algorithm is in any large body of code.
        """
        text = self._index.texts[number]
        if text.part == _PROMPT:
            return self._limits.min_share
        return self._limits.min_solution_share if text.length == self._limits.size else math.inf

    def _own(self, text: int) -> int:
        return int(self._index.own[text])

    def _overlap(self, texts: Sequence[int]) -> Overlap:
        matches = [match for text in texts if (match := self._tally.best.get(text))]
        best = max(matches, key=lambda match: match.share, default=None)
        return Overlap(
            ngrams=sum(self._own(text) for text in texts),
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
        """The words of the longest run of n-grams that the document has, or their beginning."""
        text = self._index.texts[match.text]
        start, count = _longest_run(sorted(self._position(one, match) for one in match.ngrams))
        words = text.words[start : start + min(count - 1 + text.length, _EXCERPT_WORDS)]
        return b" ".join(words).decode("utf-8", "replace")

    def _position(self, ngram: int, match: Match) -> int:
        postings = self._index.postings
        return postings.positions_of(ngram)[postings.texts_of(ngram).index(match.text)]

    def _why_unchecked(self, number: int) -> str:
        text = self._index.texts[number]
        if text.length:
            return f"{text.part}: only phrases of more than {self._limits.max_problems} problems"
        least = shortest_length(self._limits.size)
        return f"{text.part}: {len(text.words)} words, under {least} are too short to check"


def _longest_run(positions: Sequence[int]) -> tuple[int, int]:
    """The start and the length of the longest run of successive numbers; the first of equals."""
    best = run = (positions[0], 0)
    for position in positions:
        start, count = run
        run = (start, count + 1) if position == start + count else (position, 1)
        best = max(best, run, key=lambda one: one[1])
    return best
