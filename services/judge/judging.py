"""Judging one completion: the guard, then the method that its data set is judged by."""

from dataclasses import dataclass

from services.judge.methods import METHODS, Task
from services.judge.outcome import Judgement
from services.judge.sandbox import Attempts, SandboxClient
from shared.config import Config, JudgeConfig
from shared.schemas import Problem, is_encodable
from shared.statuses import FinalStatus


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges answers with one pool of sandboxes under one run's config."""

    config: Config
    sandbox: SandboxClient

    async def judge(self, problem: Problem, completion: str, attempts: Attempts) -> Judgement:
        """Judge one completion.

        Raises:
            SandboxUnavailableError: The sandbox gave no usable answer.
        """
        settings = self.config.judge.for_dataset(problem.dataset)
        if refused := _guard(settings, completion, problem.tests.cases):
            return refused
        task = Task(problem, completion, settings, self.config.sandbox, self.sandbox, attempts)
        return await METHODS[settings.method](task)


def _guard(settings: JudgeConfig, completion: str, cases: int) -> Judgement | None:
    """What needs no sandbox: nothing generated, too much of it, or no text at all."""
    if not completion.strip():
        return Judgement("guard", "none", cases, status=FinalStatus.EMPTY_OUTPUT)
    detail = None
    if len(completion) > settings.max_completion_chars:
        detail = "completion_too_long"
    elif not is_encodable(completion):
        detail = "invalid_utf8"
    if detail is None:
        return None
    return Judgement("guard", "none", cases, status=FinalStatus.SYNTAX_ERROR, detail=detail)
