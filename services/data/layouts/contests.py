"""Layouts of contest problems by standard input: CodeContests and CodeContests+.

CodeContests is google-deepmind/code_contests from JSON, parquet or the hub; CodeContests+ is
ByteDance-Seed/Code-Contests-Plus (arXiv:2506.05817), whose problems have checkers in C++ and, in
the configurations ``1x`` to ``5x``, ``test_cases``.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from services.data.layouts.base import Draft, LayoutRow, Options, StrictPart
from shared.errors import data_error
from shared.schemas import ProblemInfo

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Columns(StrictPart):
    """A struct of lists of one length, or a list of structs: libraries write either form."""

    @model_validator(mode="before")
    @classmethod
    def _as_lists(cls, value: object) -> object:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            return value
        return {
            name: [entry[name] for entry in value if name in entry] for name in cls.model_fields
        }

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        lengths = {name: len(getattr(self, name)) for name in type(self).model_fields}
        if len(set(lengths.values())) > 1:
            counts = " but ".join(f"{count} {name}s" for name, count in lengths.items())
            raise ValueError(f"{counts}; fix the row")
        return self


class _Tests(_Columns):
    input: list[str]
    output: list[str]


class _Solutions(_Columns):
    language: list[int]
    solution: list[str]


class _Duration(StrictPart):
    seconds: int | None = Field(default=None, ge=0)
    nanos: int | None = Field(default=None, ge=0)


class ContestRow(LayoutRow):
    """Row of CodeContests.

    ``time_limit`` is a struct of seconds and nanoseconds, or a number of seconds. A limit of zero
    means unknown; blank tags are skipped.
    """

    set_name = "CodeContests"
    accepts = "include_generated"
    on_request: ClassVar = {
        "solutions": "solutions",
        "incorrect_solutions": "solutions",
        "generated_tests": "include_generated",
    }
    splits = ("valid", "test", "train")
    repeats_names = True

    name: str
    description: str
    difficulty: int | str | None = None
    cf_tags: list[str] = Field(default_factory=list)
    time_limit: _Duration | _Number | None = None
    memory_limit_bytes: int | None = Field(default=None, ge=0)
    public_tests: _Tests
    private_tests: _Tests
    generated_tests: _Tests | None = None
    solutions: _Solutions | None = None
    incorrect_solutions: _Solutions | None = None

    @property
    def seconds(self) -> float | None:
        limit = self.time_limit
        if isinstance(limit, _Duration):
            limit = (limit.seconds or 0) + (limit.nanos or 0) / 1e9
        return limit or None

    def draft(self, place: str, options: Options) -> Draft:
        """The tests are the public, then the private, then (on request) the generated ones."""
        generated = self.generated_tests if options.include_generated else None
        if options.include_generated and generated is None:
            raise data_error(place, "generated_tests is missing; check that the file has them")
        parts = [self.public_tests, self.private_tests, *([generated] if generated else [])]
        inputs = [text for part in parts for text in part.input]
        dropped = ""
        if not inputs:
            dropped = "no public or private test; --include-generated adds the generated ones"
            if options.include_generated:
                dropped = "no public, private or generated test"
        split = options.split or "test"
        name = " ".join(self.name.split())
        return Draft(
            dataset=f"codecontests_{split}",
            split=split,
            problem_id=name,
            prompt=self.description,
            data_source="codecontests",
            ground_truth={
                "inputs": inputs,
                "outputs": [text for part in parts for text in part.output],
            },
            difficulty=_difficulty(self.difficulty),
            sandbox_dataset="code_contests",
            info=ProblemInfo(
                tags=tuple(tag for tag in self.cf_tags if tag.strip()),
                time_limit=self.seconds,
                memory_limit=self.memory_limit_bytes or None,
                public_tests=len(self.public_tests.input),
                private_tests=len(self.private_tests.input),
                generated_tests=len(generated.input) if generated else 0,
            ),
            solutions=_by_language(self.solutions),
            wrong=_by_language(self.incorrect_solutions),
            dropped=dropped,
        )


def _by_language(solutions: _Solutions | None) -> Iterator[tuple[str, str]]:
    """Yield (language, code): Python 3, then C++; Python 2 (1) and Java (4) are skipped."""
    if solutions is not None:
        pairs = list(zip(solutions.language, solutions.solution, strict=True))
        for number, language in ((3, "python"), (2, "cpp")):
            yield from ((language, code) for own, code in pairs if own == number)


# The data set numbers its difficulties: seven words, then Codeforces' letters A to V.
_WORDS = ("unknown", "easy", "medium", "hard", "harder", "hardest", "external")
_DIFFICULTIES: tuple[str, ...] = (*_WORDS, *"ABCDEFGHIJKLMNOPQRSTUV")


def _difficulty(value: int | str | None) -> str:
    if isinstance(value, int) and 0 <= value < len(_DIFFICULTIES):
        return _DIFFICULTIES[value]
    return _DIFFICULTIES[0] if value in (None, "") else str(value)


# CodeContests+

_MAX_SECONDS = 100
_MIB = 1024 * 1024
# Names of languages in the submissions, preferred first.
_LANGUAGES = {"py3": "python", "python3": "python", "python": "python", "cpp": "cpp", "c++": "cpp"}


class _Test(StrictPart):
    input: str
    output: str


class _Submission(StrictPart):
    code: str
    language: str


class ContestPlusRow(LayoutRow):
    """Row of CodeContests+, whose units of limits are not documented and told apart by size.

    ``time_limit`` is in milliseconds, or up to 100 in seconds; ``memory_limit`` in MiB, or from
    1 MiB on in bytes. Zero means unknown.
    """

    set_name = "CodeContests+"
    on_request: ClassVar = {
        "correct_submissions": "solutions",
        "incorrect_submissions": "solutions",
    }
    repeats_names = True

    id: str
    title: str = ""
    description: str
    time_limit: _Number | None = None
    memory_limit: _Number | None = None
    checker: str = ""
    test_cases: list[_Test] = Field(default_factory=list)
    correct_submissions: list[_Submission] = Field(default_factory=list)
    incorrect_submissions: list[_Submission] = Field(default_factory=list)

    def draft(self, place: str, options: Options) -> Draft:
        # The name is the one that the problem has in CodeContests.
        name = " ".join((f"{self.id}. {self.title}" if self.title.strip() else self.id).split())
        seconds, memory = self.time_limit or None, self.memory_limit or None
        if seconds and seconds > _MAX_SECONDS:
            seconds /= 1000
        if memory and memory < _MIB:
            memory *= _MIB
        checker = {"checker_source": self.checker, "checker_language": "cpp"}
        return Draft(
            dataset="codecontests_plus",
            split="train",
            problem_id=name,
            prompt=self.description,
            data_source="codecontests_plus",
            ground_truth={
                "inputs": [test.input for test in self.test_cases],
                "outputs": [test.output for test in self.test_cases],
                **(checker if self.checker.strip() else {}),
            },
            sandbox_dataset="code_contests",
            info=ProblemInfo(
                time_limit=seconds,
                memory_limit=int(memory) if memory else None,
                generated_tests=len(self.test_cases),
            ),
            solutions=_submitted(self.correct_submissions),
            wrong=_submitted(self.incorrect_submissions),
            dropped=""
            if self.test_cases
            else "no test cases; the configurations 1x to 5x have them",
        )


def _submitted(submissions: Sequence[_Submission]) -> list[tuple[str, str]]:
    return [
        (language, submission.code)
        for name, language in _LANGUAGES.items()
        for submission in submissions
        if submission.language.lower() == name
    ]
