"""What is compared: the texts of a problem, and the place where it stands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ProblemText:
    """A problem's prompt and its reference solutions.

    ``role`` is ``train`` or ``eval``. ``prompt_sha256`` is of the canonical prompt.
    """

    dataset: str
    split: str
    role: str
    problem_id: str
    prompt: str
    prompt_sha256: str
    solutions: tuple[str, ...] = ()
