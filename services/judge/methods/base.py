"""Interface of the judging methods: run some cases of an answer, return their outcomes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from services.judge.verdict import Outcomes
from shared.config import JudgeConfig, SandboxConfig
from shared.extraction import Extraction
from shared.schemas import Problem, RecordedCases
from shared.statuses import JudgeMethod

# Characters that are processed in the event loop; more would hold up the other completions.
_AT_ONCE = 100_000
T = TypeVar("T")


async def compute(work: Callable[[], T], characters: int) -> T:
    """Call ``work``, which processes so many characters: in a thread if they are many."""
    return work() if characters <= _AT_ONCE else await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class Task:
    """One completion to judge.

    Attributes:
        settings: Judge settings of the data set.
        limits: Sandbox settings, with the limits of one test case.
        alone: Whether each call waits until nothing else runs in the sandbox.
        max_call_input: Bytes of input per call, in JSON; a single case may exceed it.
        recorded: Cases that are recorded beside the verdict.
    """

    problem: Problem
    completion: str
    settings: JudgeConfig
    limits: SandboxConfig
    sandbox: SandboxClient
    attempts: Attempts
    alone: bool = False
    max_call_input: int = 16 * 1024 * 1024
    recorded: RecordedCases = "none"

    def confirming(self, max_timeouts: int | None) -> Self:
        """Return the task for exclusive use of the sandbox: load cannot cause a time-out there."""
        settings = self.settings.model_copy(update={"max_timeouts": max_timeouts})
        return replace(self, alone=True, settings=settings)


class Method(ABC):
    """Runs the cases of one answer; the rules for the verdict are in ``services.judge.verdict``.

    Attributes:
        name: Method recorded in the verdict.
        checker: Name of the checker.
        extraction: The code of the answer; None if SandboxFusion extracts it.
        shared_process: Whether the tests ran in the answer's process, where it can reach them.
        has_budget: Whether ``judge.max_timeouts`` limits its time-outs.
    """

    has_budget: bool = False
    name: JudgeMethod
    checker: str
    extraction: Extraction | None = None
    shared_process: bool = False

    @abstractmethod
    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        """Run at least these cases; return the outcomes of all cases that ran.

        Raises:
            SandboxUnavailableError: The sandbox gave no usable response.
        """

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        """Apply the problem's own checker, if it has one, to the cases that passed so far.

        Raises:
            SandboxUnavailableError: The checker or the sandbox failed.
        """
        return outcomes
