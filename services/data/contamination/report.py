"""What a corpus has of evaluation problems, problem by problem."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """By what the check went; see `check_contamination`.

    The usual shares lie far from both sides of what was measured. HumanEval, MBPP, 40 problems of
    CodeContests, answers to them and 110 MB of unrelated code have less than 0.1 of a prompt that
    is not theirs, and less than 0.2 of a solution. Of 164 answers that repeat HumanEval's prompt,
    160 have over 0.9 of it; the least faithful has 0.6. Solutions need more, as the same idea is
    often written down alike.
    """

    size: int
    min_share: float
    min_solution_share: float
    max_problems: int


@dataclass(frozen=True, slots=True)
class Hit:
    """The document with most of a text, of equal ones the first.

    ``row`` is the row of a parquet file, the line of JSONL, and in plain text the line where the
    passage begins that was looked at as a whole; all count from 1. ``part`` is the problem's
    ``prompt`` or a ``solution``. ``excerpt``: words that both have, as they were compared.
    """

    path: str
    row: int
    part: str
    ngrams: int
    share: float
    excerpt: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many n-grams that count a problem's prompt, or its solutions together, have.

    ``found`` of them are somewhere in the corpus; ``hit`` is the one document that has most.
    """

    ngrams: int
    found: int
    hit: Hit | None

    @property
    def share(self) -> float:
        return self.found / self.ngrams if self.ngrams else 0.0


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """``documents`` have at least one n-gram; ``unchecked`` says which texts have none, and why."""

    dataset: str
    problem_id: str
    contaminated: bool
    prompt: Overlap
    solutions: Overlap
    documents: int
    unchecked: tuple[str, ...]

    @property
    def share(self) -> float:
        """The highest share that one document has of one text."""
        return max(
            (part.hit.share for part in (self.prompt, self.solutions) if part.hit), default=0
        )


@dataclass(frozen=True, slots=True)
class ContaminationReport:
    """``bytes`` is the size of the files as stored; those with the highest share come first."""

    limits: Limits
    files: int
    documents: int
    bytes: int
    skipped: tuple[str, ...]
    problems: tuple[ProblemReport, ...]

    @property
    def contaminated(self) -> tuple[ProblemReport, ...]:
        return tuple(problem for problem in self.problems if problem.contaminated)

    def document(self) -> dict[str, Any]:
        """The report as JSON has it, with the numbers of problems in front."""
        unchecked = sum(not one.prompt.ngrams + one.solutions.ngrams for one in self.problems)
        counts = {"contaminated": len(self.contaminated), "unchecked": unchecked}
        return {"counts": {"problems": len(self.problems), **counts}, **asdict(self)}
