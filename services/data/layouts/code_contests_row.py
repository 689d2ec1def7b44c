"""A row of CodeContests, as JSON, parquet and the hub have it."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from services.data.layouts.base import LayoutRow

_NANOS = 1_000_000_000
# The layout's numbers of languages, those that solutions are taken in, best first; 1, Python 2,
# and 4, Java, are left out.
_LANGUAGES = {3: "python", 2: "cpp"}


def _as_lists(value: object) -> object:
    """A list of structs as the struct of lists that it stands for.

    Both are in use: the library that wrote a file decides.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return value
    names: dict[str, list[Any]] = {"input": [], "output": [], "language": [], "solution": []}
    for entry in value:
        for name in names.keys() & entry.keys():
            names[name].append(entry[name])
    return names


class _Tests(LayoutRow):
    input: list[str]
    output: list[str]


class _Solutions(LayoutRow):
    language: list[int]
    solution: list[str]


class _Duration(LayoutRow):
    seconds: int | None = Field(default=None, ge=0)
    nanos: int | None = Field(default=None, ge=0)


Tests = Annotated[_Tests, BeforeValidator(_as_lists)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Contest(LayoutRow):
    """``time_limit`` is a struct of seconds and nanoseconds, or a number of seconds.

    A limit of zero stands for an unknown one, and a blank tag for none.
    """

    name: str
    description: str
    difficulty: int | str | None = None
    cf_tags: list[str] | None = None
    time_limit: _Duration | _Seconds | None = None
    memory_limit_bytes: int | None = Field(default=None, ge=0)
    public_tests: Tests
    private_tests: Tests
    generated_tests: Tests = _Tests(input=[], output=[])
    solutions: Annotated[_Solutions, BeforeValidator(_as_lists)] | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(tag for tag in self.cf_tags or () if tag.strip())

    @property
    def seconds(self) -> float | None:
        limit = self.time_limit
        if isinstance(limit, _Duration):
            limit = (limit.seconds or 0) + (limit.nanos or 0) / _NANOS
        return limit or None

    @property
    def memory(self) -> int | None:
        return self.memory_limit_bytes or None

    def solutions_by_language(self) -> Iterator[tuple[str, str]]:
        """(language, code), the best language first, in the row's order within one."""
        if self.solutions is None:
            return
        pairs = list(zip(self.solutions.language, self.solutions.solution, strict=True))
        for number, language in _LANGUAGES.items():
            yield from ((language, code) for found, code in pairs if found == number)


class ContestWithGenerated(Contest):
    """Where generated tests are wanted, they have to be there."""

    generated_tests: Tests
