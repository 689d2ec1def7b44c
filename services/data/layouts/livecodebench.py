"""Layout of LiveCodeBench's code generation set (JSON lines or parquet), with plain JSON tests.

The published ``code_generation_lite`` files keep their private tests as base64 of zlib of a pickle
(``lcb_runner/benchmarks/code_generation.py`` of LiveCodeBench). Unpickling runs whatever a file
says, so such a row is refused.
"""

import json
from datetime import date, datetime
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from services.data.layouts.base import Draft, LayoutRow, Options, StrictPart
from shared.errors import data_error
from shared.schemas import ProblemInfo, describe
from shared.statuses import Convention

_PLAIN = "livecodebench/code_generation"


class _Test(StrictPart):
    input: str
    output: str
    testtype: Literal["stdin", "functional"]


class _Metadata(StrictPart):
    func_name: str | None = None


_TESTS = TypeAdapter(list[_Test])


class LiveCodeBenchRow(LayoutRow):
    """Tests are JSON text, or lists in copies of the data; ``contest_date`` is ISO 8601."""

    set_name = "LiveCodeBench"
    accepts = "contest_dates"

    question_content: str
    question_id: str
    platform: str = ""
    contest_date: datetime | date | str
    starter_code: str = ""
    difficulty: str = ""
    public_test_cases: str | bytes | list[_Test]
    private_test_cases: str | bytes | list[_Test]
    metadata: str | _Metadata = _Metadata()

    @property
    def prompt(self) -> str:
        if not self.starter_code.strip():
            return self.question_content
        code = f"```python\n{self.starter_code}\n```"
        return f"{self.question_content}\n\nThe code begins with:\n{code}"

    def draft(self, place: str, options: Options) -> Draft | None:
        day = _contest_date(place, self)
        if options.contest_dates is not None and day not in options.contest_dates:
            return None
        public = _tests(place, self, "public_test_cases")
        private = _tests(place, self, "private_test_cases")
        return Draft(
            dataset="livecodebench",
            problem_id=self.question_id,
            prompt=self.prompt,
            data_source="livecodebench",
            ground_truth=_ground_truth(place, self, [*public, *private]),
            difficulty=self.difficulty or "unknown",
            sandbox_dataset="live_code_bench",
            info=ProblemInfo(
                tags=(self.platform,) if self.platform else (),
                public_tests=len(public),
                private_tests=len(private),
                contest_date=day.isoformat(),
            ),
        )


def _ground_truth(place: str, row: LiveCodeBenchRow, tests: list[_Test]) -> dict[str, object]:
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
    details = row.metadata
    if isinstance(details, str):
        try:
            details = _Metadata.model_validate_json(details or "{}")
        except ValidationError as error:
            raise data_error(place, f"metadata: {describe(error)}; fix the row") from None
    if not details.func_name:
        cause = "its tests call a function, but metadata has no func_name"
        raise data_error(place, f"problem {row.question_id!r}: {cause}; fix the row")
    return {**truth, "fn_name": details.func_name}


def _tests(place: str, row: LiveCodeBenchRow, name: str) -> list[_Test]:
    value: str | bytes | list[_Test] = getattr(row, name)
    if isinstance(value, list):
        return value
    if value.lstrip()[:1] not in ("[", b"["):
        cause = f"problem {row.question_id!r}: {name} is not plain JSON but encoded or pickled"
        advice = "it is never unpickled, which would run its code"
        raise data_error(place, f"{cause}; {advice}; use a copy with JSON, as {_PLAIN}")
    try:
        # Strict JSON forbids line ends in texts, which the published files have escaped.
        return _TESTS.validate_python(json.loads(value))
    except ValidationError as error:
        raise data_error(place, f"{name}: {describe(error)}; fix the row") from None
    except (ValueError, RecursionError) as error:
        raise data_error(place, f"{name} is not JSON ({error}); fix the row") from None


def _contest_date(place: str, row: LiveCodeBenchRow) -> date:
    value = row.contest_date
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise data_error(place, f"contest_date {value!r} is not a date; fix the row") from None
    return value.date() if isinstance(value, datetime) else value
