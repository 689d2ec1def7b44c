"""What a method is given, and what it is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Self

from services.judge.outcome import Judgement
from services.judge.sandbox import Attempts, SandboxClient
from shared.config import JudgeConfig, SandboxConfig
from shared.schemas import Problem


@dataclass(frozen=True, slots=True)
class Task:
    """One completion to be judged.

    Attributes:
        settings: How answers of this data set are judged.
        limits: Where programs run, and the limits of one test case.
        alone: Whether each call waits until the sandbox does nothing else.
    """

    problem: Problem
    completion: str
    settings: JudgeConfig
    limits: SandboxConfig
    sandbox: SandboxClient
    attempts: Attempts
    alone: bool = False

    def by_itself(self) -> Self:
        """The same with the sandbox to itself: a time-out there is not the machine's load."""
        return replace(self, alone=True)

    def in_python(self) -> Self:
        """The same for function tests: Python, in whatever language other answers are."""
        return replace(self, settings=self.settings.model_copy(update={"language": "python"}))


# Raises SandboxUnavailableError where the sandbox gave no usable answer.
Method = Callable[[Task], Awaitable[Judgement]]
