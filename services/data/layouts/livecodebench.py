"""Layout of LiveCodeBench's code generation set (JSON lines or parquet), with plain JSON tests.

The published ``code_generation_lite`` files keep their private tests as base64 of zlib of a pickle
(``lcb_runner/benchmarks/code_generation.py`` of LiveCodeBench). Unpickling runs whatever a file
says, so such a row is refused.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from services.data.layouts.base import (
    Imported,
    Layout,
    LayoutRow,
    Options,
    info_text,
    make_problem,
    parse_row,
    refuse_generated,
    refuse_ids,
)
from services.data.rows import Rows
from shared.errors import DataError, data_error
from shared.schemas import Problem, ProblemInfo, describe
from shared.statuses import Convention

_PLAIN = "livecodebench/code_generation"
_COLUMNS = (
    *("question_content", "question_id", "platform", "contest_date", "starter_code"),
    *("difficulty", "public_test_cases", "private_test_cases", "metadata"),
)


class _Test(LayoutRow):
    input: str
    output: str
    testtype: Literal["stdin", "functional"]


class _Metadata(LayoutRow):
    func_name: str | None = None


_TESTS = TypeAdapter(list[_Test])


class _Row(LayoutRow):
    """Tests are JSON text, or lists in copies of the data; ``contest_date`` is ISO 8601."""

    question_content: str
    question_id: str
    platform: str = ""
    contest_date: datetime | date | str
    starter_code: str | None = None
    difficulty: str | None = None
    public_test_cases: str | bytes | list[_Test]
    private_test_cases: str | bytes | list[_Test]
    metadata: str | _Metadata | None = None

    @property
    def prompt(self) -> str:
        if not (self.starter_code or "").strip():
            return self.question_content
        return (
            f"{self.question_content}\n\nThe code begins with:\n```python\n{self.starter_code}\n```"
        )


def _columns(_options: Options) -> tuple[str, ...]:
    return _COLUMNS


def _read(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read LiveCodeBench; accepts ``name``, ``split`` and ``contest_dates``."""
    refuse_ids("LiveCodeBench", options)
    refuse_generated("LiveCodeBench", options)
    found = False
    for place, fields in rows:
        row = parse_row(_Row, place, fields)
        held = _contest_date(place, row)
        if options.contest_dates is None or held in options.contest_dates:
            found = True
            yield Imported(place, _problem(place, row, held, options))
    if options.contest_dates is not None and not found:
        cause = f"no contest {options.contest_dates}; choose another range"
        raise data_error(options.source or "LiveCodeBench", cause)


def _problem(place: str, row: _Row, held: date, options: Options) -> Problem:
    public = _tests(place, row, "public_test_cases", row.public_test_cases)
    private = _tests(place, row, "private_test_cases", row.private_test_cases)
    info = ProblemInfo(
        tags=(row.platform,) if row.platform else (),
        public_tests=len(public),
        private_tests=len(private),
        contest_date=held.isoformat(),
    )
    return make_problem(
        place,
        dataset=options.name or "livecodebench",
        split=options.split or "test",
        problem_id=row.question_id,
        prompt=row.prompt,
        data_source="livecodebench",
        ground_truth=_ground_truth(place, row, [*public, *private]),
        difficulty=row.difficulty or "unknown",
        sandbox_dataset="live_code_bench",
        sandbox_id=row.question_id,
        extra_info=info_text(info),
    )


def _ground_truth(place: str, row: _Row, tests: Sequence[_Test]) -> dict[str, object]:
    """Build the tests, which are compared as LiveCodeBench does."""
    kinds = {test.testtype for test in tests}
    if len(kinds) != 1:
        cause = "no tests" if not kinds else "tests by standard input and by calls together"
        raise data_error(place, f"problem {row.question_id!r}: {cause}; leave the row out")
    truth: dict[str, object] = {
        "inputs": [test.input for test in tests],
        "outputs": [test.output for test in tests],
        "convention": Convention.LIVECODEBENCH,
    }
    if kinds == {"stdin"}:
        return {**truth, "checker": "decimals"}
    return {**truth, "fn_name": _function(place, row)}


def _function(place: str, row: _Row) -> str:
    try:
        text = row.metadata or "{}"
        found = _Metadata.model_validate_json(text) if isinstance(text, str) else text
    except ValidationError as error:
        raise data_error(place, f"metadata: {describe(error)}; fix the row") from None
    if not found.func_name:
        cause = "its tests call a function, but metadata has no func_name"
        raise data_error(place, f"problem {row.question_id!r}: {cause}; fix the row")
    return found.func_name


def _tests(
    place: str, row: _Row, field: str, value: str | bytes | Sequence[_Test]
) -> Sequence[_Test]:
    if not isinstance(value, str | bytes):
        return value
    if value.lstrip()[:1] not in ("[", b"["):
        raise _refused(place, row, field)
    try:
        # Strict JSON forbids line ends in texts, which the published files have escaped.
        return _TESTS.validate_python(json.loads(value))
    except ValidationError as error:
        raise data_error(place, f"{field}: {describe(error)}; fix the row") from None
    except (ValueError, RecursionError) as error:
        raise data_error(place, f"{field} is not JSON ({error}); fix the row") from None


def _refused(place: str, row: _Row, field: str) -> DataError:
    cause = f"problem {row.question_id!r}: {field} is not plain JSON but encoded or pickled"
    advice = f"it is never unpickled, which would run its code; use a copy with JSON, as {_PLAIN}"
    return data_error(place, f"{cause}; {advice}")


def _contest_date(place: str, row: _Row) -> date:
    value = row.contest_date
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return datetime.fromisoformat(value).date()
    except ValueError:
        raise data_error(place, f"contest_date {value!r} is not a date; fix the row") from None


LIVECODEBENCH = Layout(_columns, _read)
