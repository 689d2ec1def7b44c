"""Contamination report: overlap of each evaluation problem with the corpus."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from services.data.contamination.corpus import CorpusFile
from services.data.contamination.index import EvalText, Index, Match, Part, Tally, View
from services.data.records import ProblemText

_NEARLY_ALL = 0.95
_ENOUGH_NGRAMS = 100
_EXCERPT_WORDS = 40


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


# Computation


def make_report(
    problems: Sequence[ProblemText],
    limits: ReportLimits,
    files: Sequence[CorpusFile],
    skipped: tuple[str, ...],
    index: Index,
    tally: Tally,
) -> ContaminationReport:
    texts: dict[int, list[int]] = defaultdict(list)
    for number, text in enumerate(index.texts):
        texts[text.problem].append(number)
    reports = []
    for number, problem in enumerate(problems):
        statement, solutions = (
            _overlap(part, texts[number], limits, index, tally) for part in Part
        )
        report = ProblemReport(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            contaminated=statement.contaminated or solutions.contaminated,
            statement=statement,
            solutions=solutions,
            documents=tally.hits[number],
            unchecked=tuple(_unchecked(texts[number], problem, limits, index)),
        )
        share = max(part.share for part in report.parts)
        order = (not report.contaminated, -share, problem.dataset, problem.problem_id)
        reports.append((order, number, report))
    size = sum(file.size for file in files)
    ordered = tuple(report for *_, report in sorted(reports, key=lambda entry: entry[:2]))
    return ContaminationReport(limits, len(files), tally.documents, size, skipped, ordered)


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
        path=match.path,
        row=match.row,
        text=text.name,
        view=text.view,
        ngrams=len(match.positions),
        share=match.share,
        excerpt=" ".join(words).encode("utf-8", "replace").decode("utf-8"),
    )
