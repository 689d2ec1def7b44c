"""What CodeContests says of a problem beside its text, and that its kinds of tests stay apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options
from shared.errors import DataError
from shared.schemas import ProblemInfo
from tests.data.test_code_contests import row


def read(fields, **options):
    rows = iter([("here", fields)])
    (found,) = LAYOUTS["code_contests"].read(rows, Options(include_generated=True, **options))
    return found


def info(**changes):
    return read(row(**changes)).problem.info


def test_all_that_is_known():
    found = info(
        cf_tags=["dp", "", " ", "math"],
        time_limit={"seconds": 2, "nanos": 500_000_000},
        memory_limit_bytes=256_000_000,
    )
    assert found == ProblemInfo(
        tags=("dp", "math"),
        time_limit=2.5,
        memory_limit=256_000_000,
        public_tests=1,
        private_tests=1,
        generated_tests=2,
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ({"seconds": 0, "nanos": 0}, None),
        ({"seconds": None, "nanos": None}, None),
        ({"seconds": 3}, 3.0),
        ({"seconds": 3, "nanos": None}, 3.0),
        (1.5, 1.5),
        (2, 2.0),
    ],
)
def test_time_limits(value, seconds):
    assert info(time_limit=value).time_limit == seconds


@pytest.mark.parametrize(
    "changes",
    [
        {"time_limit": "2s"},
        {"time_limit": {"seconds": -1, "nanos": 0}},
        {"time_limit": float("nan")},
        {"memory_limit_bytes": -1},
        {"cf_tags": "dp"},
        {"cf_tags": ["\ud800"]},
    ],
)
def test_what_cannot_be_is_named(changes):
    with pytest.raises(DataError, match=r"^here: ") as caught:
        read(row(**changes))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "extra_info" in message or next(iter(changes)) in message


def test_zero_and_blank_are_unknown():
    problem = read(row(memory_limit_bytes=0, cf_tags=[""])).problem
    counts = '{"public_tests": 1, "private_tests": 1, "generated_tests": 2}'
    assert problem.extra_info == counts


_CASES = st.lists(st.tuples(st.text("ab\n"), st.text("ab\n")), max_size=4)


@given(public=_CASES, private=_CASES, generated=_CASES, include=st.booleans())
def test_the_counts_part_the_tests(public, private, generated, include):
    parts = {"public_tests": public, "private_tests": private, "generated_tests": generated}
    lists = {
        name: {"input": [one for one, _ in cases], "output": [two for _, two in cases]}
        for name, cases in parts.items()
    }
    structs = {
        name: [{"input": one, "output": two} for one, two in cases] for name, cases in parts.items()
    }
    options = Options(include_generated=include)
    rows = iter([("here", row(**lists)), ("here", row(**structs))])
    first, second = LAYOUTS["code_contests"].read(rows, options)
    assert first == second
    wanted = [*public, *private, *(generated if include else [])]
    if not wanted:
        assert isinstance(first, Dropped)
        return
    tests, known = first.problem.tests, first.problem.info
    assert list(zip(tests.inputs, tests.outputs, strict=True)) == wanted
    counts = (known.public_tests, known.private_tests, known.generated_tests)
    assert counts == (len(public), len(private), len(generated) if include else 0)


def test_a_struct_without_one_side_is_named():
    with pytest.raises(DataError, match="public_tests has 2 inputs but 1 outputs"):
        read(row(public_tests=[{"input": "1", "output": "2"}, {"input": "1"}]))
