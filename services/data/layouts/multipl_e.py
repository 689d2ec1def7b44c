"""Layout of MultiPL-E: HumanEval and MBPP translated to other languages (nuprl/MultiPL-E).

Source of the format: nuprl/MultiPL-E, ``dataset_builder``. One configuration of the data set has
one language.
"""

from collections.abc import Iterator

from pydantic import Field

from services.data.layouts.base import (
    Imported,
    Layout,
    LayoutRow,
    Options,
    make_problem,
    parse_row,
    refuse_dates,
    refuse_generated,
    refuse_ids,
)
from services.data.rows import Rows
from shared.errors import data_error

_COLUMNS = ("name", "language", "prompt", "tests", "stop_tokens")
# MultiPL-E names a language by the ending of its files, and SandboxFusion otherwise.
LANGUAGES = {
    "cpp": "cpp",
    "java": "java",
    "js": "nodejs",
    "rs": "rust",
    "go": "go_test",
    "go_test.go": "go_test",
}


class _Row(LayoutRow):
    """The prompt ends within a function; the tests may begin with the brace that closes it."""

    name: str
    language: str
    prompt: str
    tests: str
    stop_tokens: list[str] = Field(default_factory=list)


def _columns(_options: Options) -> tuple[str, ...]:
    return _COLUMNS


def _read(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read one language of MultiPL-E; accepts ``name`` and ``split``."""
    for refuse in (refuse_ids, refuse_generated, refuse_dates):
        refuse("MultiPL-E", options)
    first: str | None = None
    for place, fields in rows:
        row = parse_row(_Row, place, fields)
        first = first or row.language
        _check_language(place, row.language, first)
        # "HumanEval_0_has_close_elements", "mbpp_3_is_not_prime"
        source = row.name.partition("_")[0].lower()
        problem = make_problem(
            place,
            dataset=options.name or f"{source}_{row.language.partition('_')[0]}",
            split=options.split or "test",
            problem_id=row.name,
            prompt=row.prompt,
            data_source="multipl_e",
            ground_truth={
                "language": LANGUAGES[row.language],
                "prompt": row.prompt,
                "program_tests": row.tests,
                "stop_tokens": row.stop_tokens,
            },
            sandbox_dataset="multiple",
            sandbox_id=row.name,
        )
        yield Imported(place, problem)


def _check_language(place: str, language: str, first: str) -> None:
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        cause = f"language {language!r} cannot be judged"
        raise data_error(place, f"{cause}; choose a set in one of {known}")
    if language != first:
        cause = f"language {language!r}, but earlier rows are in {first!r}"
        raise data_error(place, f"{cause}; split the file")


MULTIPL_E = Layout(_columns, _read)
