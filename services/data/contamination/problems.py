"""Evaluation problems, and the n-grams by which they are recognized."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.data.text.words import words

SHORTEST = 8


@dataclass(frozen=True, slots=True)
class EvalProblem:
    """A problem that a model is to be measured with, and its known solutions."""

    dataset: str
    problem_id: str
    prompt: str
    solutions: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The texts by the names that reports use, the prompt first."""
        solutions = {f"solution {at}": text for at, text in enumerate(self.solutions, start=1)}
        return {"prompt": self.prompt, **solutions}


@dataclass(frozen=True, slots=True)
class EvalText:
    """One text of a problem as words.

    ``problem`` counts from 0. ``length`` is the n-grams' number of words, 0 where the text is too
    short for any: a text below the usual size is one n-gram of all its words.
    """

    problem: int
    part: str
    words: tuple[bytes, ...]
    length: int


def eval_texts(problems: Sequence[EvalProblem], size: int) -> list[EvalText]:
    texts = []
    interned: dict[bytes, bytes] = {}
    for number, problem in enumerate(problems):
        for part, text in problem.texts.items():
            found = tuple(interned.setdefault(word, word) for word in words(text))
            length = min(size, len(found)) if len(found) >= shortest_length(size) else 0
            texts.append(EvalText(number, part, found, length))
    return texts


def shortest_length(size: int) -> int:
    """The fewest words that are looked for: fewer are met by chance."""
    return min(SHORTEST, size)
