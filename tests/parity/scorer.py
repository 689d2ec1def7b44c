"""Calls of verl's scorer and of ours."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from services.judge.judging import judge_answer
from services.judge.sandbox import SandboxClient
from shared.schemas import StdioTests, Verdict
from shared.statuses import FinalStatus
from tests.judge.tasks import as_verdict, make_task, with_tests
from tests.parity.cases import Answer
from tests.parity.verl import NAME

MEMORY_MB = 1024
_CONCURRENCY = 4


@dataclass(frozen=True, slots=True)
class Found:
    """What verl says: a code and what it knows per case, and the score."""

    codes: Sequence[int]
    metadata: Sequence[Mapping[str, Any]]
    score: float

    @property
    def statuses(self) -> list[FinalStatus]:
        """The cases' statuses under our names."""
        names = [case["status"] for case in self.metadata if "status" in case]
        return [_STATUSES.get(name, FinalStatus.API_ERROR) for name in names]


class Scorer:
    """verl's functions; ``recorded_check`` has to stand in the place of ``check_correctness``.

    The codes are compared, and ``compute_score`` does not return them.
    """

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self.modules = modules
        self.package, self.utils = modules[NAME], modules[f"{NAME}.utils"]
        self._check = self.package.check_correctness
        self._last = threading.local()

    def recorded_check(self, **arguments: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        self._last.codes, metadata = self._check(**arguments)
        return self._last.codes, metadata

    def score(self, url: str, answer: Answer) -> Found:
        """Have ``compute_score`` judge an answer."""
        self._last.codes = []
        slots = threading.Semaphore(_CONCURRENCY)
        tests = answer.tests.model_dump(exclude_none=True)
        score, metadata = self.package.compute_score(
            f"{url}/run_code", slots, MEMORY_MB, answer.completion, tests, timeout=answer.timeout
        )
        return _found(self._last.codes, metadata, score)

    def reward(self, url: str, answer: Answer) -> float:
        """The score by verl's default route, which counts the first ten cases.

        It is what ``default_compute_score`` calls for the data source ``codecontests``.
        """
        slots = threading.Semaphore(_CONCURRENCY)
        score, _ = self.package.compute_score(
            f"{url}/run_code",
            slots,
            MEMORY_MB,
            answer.completion,
            answer.tests.model_dump_json(exclude_none=True),
            continuous=True,
        )
        return float(score)

    def check(self, url: str, code: str, tests: StdioTests, language: str) -> Found:
        """Have ``check_correctness`` judge a program in any language."""
        slots = threading.Semaphore(_CONCURRENCY)
        codes, metadata = self._check(
            f"{url}/run_code", tests.model_dump(), code, 10, MEMORY_MB, language, slots
        )
        return _found(codes, metadata, codes.count(True) / len(codes))


def _found(codes: Sequence[Any], metadata: Any, score: float) -> Found:
    return Found([int(code) for code in codes], metadata, score)


async def judge(sandbox: SandboxClient, answer: Answer, *overrides: str) -> Verdict:
    """Have our ``compute_score`` judge an answer.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable answer for a case.
    """
    options = (
        "judge.method=compute_score",
        "judge.confirm_timeouts=false",  # verl takes a time-out as it comes
        f"sandbox.timeout={answer.timeout}",
        f"sandbox.memory_limit_mb={MEMORY_MB}",
        *overrides,
    )
    problem = with_tests(**answer.tests.model_dump(mode="json", exclude_none=True))
    task = make_task(sandbox, problem, answer.completion, *options)
    return as_verdict(await judge_answer(task), task.completion, task.attempts)


# verl's names for what a case came to, under ours.
_STATUSES = {
    "success": FinalStatus.SUCCESS,
    "wrong_answer": FinalStatus.WRONG_ANSWER,
    "runtime_error": FinalStatus.RUNTIME_ERROR,
    "timeout": FinalStatus.TIMEOUT,
    "compile_error": FinalStatus.SYNTAX_ERROR,
    "compile_timeout": FinalStatus.SYNTAX_ERROR,
    "compile_error_skipped": FinalStatus.SYNTAX_ERROR,
}
