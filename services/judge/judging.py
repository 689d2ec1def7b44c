"""Judging one completion: the guard, then the method for its kind of tests."""

from dataclasses import dataclass

from services.judge.methods import compute_score, function_tests
from services.judge.outcome import Judgement
from services.judge.sandbox import Attempts, SandboxClient
from shared.config import Config
from shared.schemas import Problem, StdioTests
from shared.statuses import FinalStatus


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges answers with one sandbox under one run's config."""

    config: Config
    sandbox: SandboxClient

    async def judge(self, problem: Problem, completion: str, attempts: Attempts) -> Judgement:
        """Judge one completion.

        Raises:
            SandboxUnavailableError: The sandbox gave no usable answer.
        """
        tests = problem.tests
        if refused := self._guard(completion, tests.cases):
            return refused
        if isinstance(tests, StdioTests):
            return await compute_score.judge(self.sandbox, self.config, completion, tests, attempts)
        return await function_tests.judge(self.sandbox, self.config, completion, tests, attempts)

    def _guard(self, completion: str, cases: int) -> Judgement | None:
        if not completion.strip():
            return Judgement("guard", "none", cases, status=FinalStatus.EMPTY_OUTPUT)
        if len(completion) > self.config.judge.max_completion_chars:
            return Judgement(
                "guard",
                "none",
                cases,
                status=FinalStatus.SYNTAX_ERROR,
                detail="completion_too_long",
            )
        return None
