"""Reference solutions that the judge does not accept: what is asked, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.data.layouts.base import Solution
from services.data.records import Record
from shared.schemas import Problem


@dataclass(frozen=True, slots=True)
class Rejected:
    """``number`` counts a problem's solutions from 1; ``reason`` is the judge's verdict."""

    dataset: str
    problem_id: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReferenceSolution:
    """A solution to judge; it is sample ``number`` - 1 of its problem."""

    problem: Problem
    number: int
    solution: Solution

    @property
    def completion(self) -> str:
        """The solution as a model would give it, in a fence that it cannot close."""
        fence = "```"
        while fence in self.solution.code:
            fence += "`"
        return f"{fence}{self.solution.language}\n{self.solution.code}\n{fence}\n"


Verifier = Callable[[Sequence[ReferenceSolution]], list[Rejected]]


def reference_solutions(records: Sequence[Record]) -> list[ReferenceSolution]:
    """All reference solutions of problems, in their order."""
    return [
        ReferenceSolution(record.problem, number, solution)
        for record in records
        for number, solution in enumerate(record.solutions, start=1)
    ]
