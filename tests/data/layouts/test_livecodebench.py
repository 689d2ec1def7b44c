"""LiveCodeBench's layout, with rows of our own in the published form."""

import base64
import json
import pickle
import zlib

from services.data.config import DateRange
from shared.statuses import Convention
from tests.data.layouts.rows import CALLS, STDIN, livecodebench
from tests.data.support import import_failure, imported, write_lines


class Witness:
    """A pickle of it deletes the file ``path`` when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (__import__("os").remove, (self.path,))


def refused(tmp_path, *rows, **options):
    source = write_lines(tmp_path / "lcb.jsonl", rows)
    return import_failure("livecodebench", source, tmp_path, **options)


def test_standard_input(tmp_path):
    (problem,) = imported("livecodebench", tmp_path, livecodebench())
    assert (problem.dataset, problem.problem_id) == ("livecodebench", "abc999_a")
    assert (problem.difficulty, problem.prompt) == ("easy", "Add two numbers.")
    assert problem.tests.inputs == ["1 2\n", "1 2\n"]
    assert problem.tests.outputs == ["3\n", "3\n"]
    assert (problem.tests.fn_name, problem.tests.checker) == (None, "decimals")
    info = problem.info
    assert (info.public_tests, info.private_tests, info.tags) == (1, 1, ("atcoder",))
    assert info.contest_date == "2024-09-07"


def test_calls_of_a_function(tmp_path):
    given = livecodebench(
        starter_code="class Solution:\n    def append(self, xs, x):\n        ",
        public_test_cases=json.dumps(CALLS),
        private_test_cases="[]",
        metadata='{"func_name": "append"}',
    )
    (problem,) = imported("livecodebench", tmp_path, given)
    assert (problem.tests.fn_name, problem.tests.calls) == ("append", Convention.LIVECODEBENCH)
    assert problem.tests.inputs == ["[1, 2]\n3"]
    assert "class Solution:" in problem.prompt
    assert problem.prompt.endswith("```")


# Pickles


def test_pickled_tests_are_refused_and_never_loaded(tmp_path):
    witness = tmp_path / "witness"
    witness.touch()
    for content in (Witness(str(witness)), json.dumps(STDIN)):
        for protocol in (0, 2, pickle.HIGHEST_PROTOCOL):
            pickled = pickle.dumps(content, protocol)
            for raw in (pickled, zlib.compress(pickled)):
                text = base64.b64encode(raw).decode()
                for field in ("private_test_cases", "public_test_cases"):
                    bad = livecodebench(question_id="b", **{field: text})
                    message = refused(tmp_path, livecodebench(), bad)
                    assert f"lcb.jsonl:2: problem 'b': {field} is not plain JSON" in message
                    assert "never unpickled" in message
                    assert "use a copy with JSON" in message
    assert witness.exists()
    assert not list(tmp_path.glob("*.parquet"))


def test_rows_that_cannot_be_used(tmp_path):
    for changes, words in (
        ({"private_test_cases": "[{}"}, "private_test_cases is not JSON"),
        ({"private_test_cases": "[" * 100_000}, "private_test_cases is not JSON"),
        ({"private_test_cases": '[{"input": 1}]'}, "private_test_cases: 0.input"),
        ({"private_test_cases": json.dumps(CALLS)}, "standard input and by calls"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "no tests"),
        ({"public_test_cases": json.dumps(CALLS), "private_test_cases": "[]"}, "no func_name"),
        ({"contest_date": "soon"}, "contest_date 'soon' is not a date"),
        ({"question_id": None}, "question_id"),
    ):
        assert words in refused(tmp_path, livecodebench(**changes)), changes


# Dates


ROWS = [livecodebench(question_id=day, contest_date=f"{day}T23:30:00") for day in
        ("2024-07-31", "2024-08-01", "2024-08-31", "2024-09-01")]  # fmt: skip


def test_contests_are_selected_by_day(tmp_path):
    rows = [{**row, "question_content": row["question_id"]} for row in ROWS]
    for since, until, kept in (
        ("2024-08-01", "2024-08-31", ["2024-08-01", "2024-08-31"]),
        ("2024-08-31", None, ["2024-08-31", "2024-09-01"]),
        (None, "2024-07-31", ["2024-07-31"]),
    ):
        dates = DateRange.model_validate({"since": since, "until": until})
        record = imported("livecodebench", tmp_path, *rows, contest_dates=dates)
        assert [problem.problem_id for problem in record] == kept


def test_a_row_outside_the_days_may_be_pickled(tmp_path):
    dates = DateRange.model_validate({"since": "2024-09-01"})
    old = livecodebench(question_id="old", contest_date="2023-01-01", private_test_cases="eJxrYJ")
    (record,) = imported("livecodebench", tmp_path, old, livecodebench(), contest_dates=dates)
    assert record.problem_id == "abc999_a"
