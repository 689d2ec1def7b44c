"""Problem outlines: the lines of ``problems.jsonl``, without the tests."""

from collections.abc import Iterator
from typing import Self

from shared import artifacts
from shared.artifacts import OutputFolder
from shared.extraction import called_functions
from shared.finished_run import Report, raise_error, read_artifact
from shared.function_plan import prelude_of
from shared.prompts import recorded_messages
from shared.reference import problem_digest
from shared.run_record import Provenance
from shared.schemas import (
    ChatMessage,
    HumanEvalTests,
    MbppTests,
    Part,
    Problem,
    ProblemFacts,
    QualityFinding,
    quality_findings,
    readable_tests,
    without_surrogates,
)


class ProblemOutline(Part):
    """A line of ``problems.jsonl``.

    ``messages`` are what the model was sent; None for recorded completions. ``num_tests`` is None
    if the tests are invalid, ``entry_point`` if they name no function; ``prelude`` is the source
    text that runs before an answer, such as the prompt's imports; ``quality`` has the audit's
    findings; ``digest`` is :func:`problem_digest`.
    """

    dataset: str
    problem_id: str
    prompt: str
    messages: tuple[ChatMessage, ...] | None = None
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    num_tests: int | None = None
    entry_point: str | None = None
    prelude: str = ""
    quality: str = ""
    digest: str = ""

    @classmethod
    def of(cls, problem: Problem, run: Provenance) -> Self:
        tests = readable_tests(problem)
        return cls(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            prompt=without_surrogates(problem.prompt),
            messages=recorded_messages(problem, run),
            difficulty=problem.difficulty,
            tags=problem.info.tags,
            num_tests=tests and tests.cases,
            entry_point=entry_point(problem),
            prelude=without_surrogates(prelude_of(tests)) if tests else "",
            quality=problem.quality,
            digest=problem_digest(problem),
        )

    @property
    def texts(self) -> list[str]:
        """What the model was asked: the messages, or the prompt where they are unknown."""
        return [message.content for message in self.messages] if self.messages else [self.prompt]

    @property
    def facts(self) -> ProblemFacts:
        many = QualityFinding.MANY_ANSWERS in quality_findings(self.quality)
        return ProblemFacts(self.difficulty, self.tags, self.num_tests, len(self.prompt), many)


def entry_point(problem: Problem) -> str | None:
    """The function that the tests call; None if they name none or several, or are invalid."""
    tests = readable_tests(problem)
    if isinstance(tests, MbppTests):
        called = called_functions(tests.test_list, tests.test_setup_code)
        return min(called) if len(called) == 1 else None
    return tests.entry_point if isinstance(tests, HumanEvalTests) else None


def read_outlines(folder: OutputFolder, report: Report = raise_error) -> Iterator[ProblemOutline]:
    """Yield the lines of ``problems.jsonl``; none if the file is gone.

    ``report`` is called with the error of an invalid line, which is skipped.

    Raises:
        OutputError: While iterating: the file or a line of it is invalid.
    """
    if folder.exists(artifacts.PROBLEMS):
        yield from read_artifact(folder, artifacts.PROBLEMS, ProblemOutline, report)
