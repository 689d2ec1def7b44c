"""Two problems that have something in common."""

from dataclasses import dataclass
from enum import StrEnum

from shared.errors import DataError

# Beyond it the data sets are a few texts over and over, and a list of pairs is of no use.
MAX_PAIRS = 200_000

# By the problems' positions, the smaller one first: how similar they are, 0 to 1.
Similarities = dict[tuple[int, int], float]


class Kind(StrEnum):
    """How two problems are alike."""

    EXACT = "exact"
    NEAR = "near"
    PROMPT_NGRAMS = "prompt_ngrams"
    SOLUTION_NGRAMS = "solution_ngrams"


@dataclass(frozen=True, slots=True)
class Side:
    """One problem of a pair. ``excerpt``: one line of its text, where the two are alike."""

    dataset: str
    split: str
    role: str
    problem_id: str
    excerpt: str

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.problem_id}"


@dataclass(frozen=True, slots=True)
class Finding:
    """``similarity``: 1 where exact, the Jaccard index where near, else the share of n-grams."""

    kind: Kind
    similarity: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair of problems, ``a`` before ``b`` by data set, split and id, and all that was found."""

    a: Side
    b: Side
    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(finding.kind for finding in self.findings)


def check_number(pairs: int) -> None:
    """Refuse to go on where most problems are copies of one another.

    Raises:
        DataError: There are more pairs than ``MAX_PAIRS``.
    """
    if pairs > MAX_PAIRS:
        raise DataError(
            f"more than {MAX_PAIRS:,} pairs of problems are alike; see whether a data set repeats "
            "its prompts, remove the copies within each, or raise checks.near.threshold"
        )
