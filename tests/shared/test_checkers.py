"""Outputs that each checker accepts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.checkers import get_checker

SPECS = ["exact", "lines", "tokens", "float", "float:1e-3"]
LONG_UNITS = ["1", "1 ", "1\n", "\n", " ", "1.", "a\n", "e1 ", "1e5\n"]


@pytest.mark.parametrize(
    ("actual", "expected", "accepting"),
    [
        ("1 2\n", "1 2", {"exact", "lines", "tokens", "float"}),
        ("1 2", "1 2\n\n", {"exact", "lines", "tokens", "float"}),
        ("1 2 \n", "1 2\n", {"lines", "tokens", "float"}),
        ("1  2", "1 2", {"tokens", "float"}),
        ("1\n\n2", "1\n2", {"tokens", "float"}),
        ("YES\nno", "Yes\nNO", {"lines"}),
        ("3.0", "3", {"lines", "float"}),
        ("3.0 1", "3 1", {"float"}),
        ("0.333333", "0.3333333", {"lines", "float"}),
        ("1.000009", "1", {"lines"}),
        ("1.00001", "1", set()),
        ("100000000", "100000001", {"lines", "float"}),
        ("1e-7", "0", {"float"}),
        ("nan", "nan", {"exact", "lines", "tokens", "float"}),
        ("nan", "NaN", {"lines"}),
        ("inf", "1e999", set()),
        ("1e999", "2e999", set()),
        ("1_0", "10", {"lines"}),
        ("", "", {"exact", "lines", "tokens", "float"}),
        ("a", "b", set()),
    ],
)
def test_accepts(actual, expected, accepting):
    found = {
        spec
        for spec in ("exact", "lines", "tokens", "float")
        if get_checker(spec)(actual, expected)
    }
    assert found == accepting


def test_the_tolerance_is_absolute_or_relative():
    checker = get_checker("float:0.01")
    assert checker("0.009", "0")
    assert not checker("0.011", "0")
    assert checker("1009", "1000")
    assert not checker("1011", "1000")
    assert get_checker("float:0")("1.0", "1")


@pytest.mark.parametrize(
    "spec", ["", "Exact", "float:", "float:x", "float:-1", "float:nan", "float:inf", "float:1e999",
             "exact:1", "tokens "]
)  # fmt: skip
def test_an_unknown_name_is_told_the_valid_ones(spec):
    with pytest.raises(ValueError, match="exact, lines, tokens, float"):
        get_checker(spec)


texts = st.text() | st.text(alphabet="01.-+e \n\tnaif")


@given(actual=texts, expected=texts)
def test_looser_checkers_accept_what_stricter_ones_do(actual, expected):
    accepted = {spec: get_checker(spec)(actual, expected) for spec in SPECS}
    assert accepted["exact"] <= accepted["lines"]
    assert accepted["exact"] <= accepted["tokens"] <= accepted["float"] <= accepted["float:1e-3"]


def test_long_outputs_are_compared_to_their_end():
    """A quadratic comparison takes minutes and runs into the timeout."""
    for spec, unit in itertools.product(SPECS, LONG_UNITS):
        print(f"{spec}: {unit!r}")  # names the output after a timeout
        text = unit * (100_000 // len(unit))
        assert not get_checker(spec)(text + "x", text + "y"), (spec, unit)
        get_checker(spec)(text + "1", text + "2")


@pytest.mark.parametrize(
    ("checker", "actual", "expected", "passes"),
    [
        ("json", "[1,2]\n", "[1, 2]", True),
        ("json", "2\n", "2.0", True),
        ("json", "abc\n", '"abc"', True),
        ("json", '"abc"', '"abc"', True),
        ("json", "two\nlines\n", '"two\\nlines"', True),
        ("json", "true", "true", True),
        ("json", "debugging\n[1]\n", "[1]", False),
        ("json", "", '""', True),
        ("json", '{"b": 1, "a": 2}', '{"a": 2, "b": 1}', True),
        ("json", "not json", "not json", True),
        ("json", "[" * 100_000, "[1]", False),
        ("json", "9" * 5000, "1", False),
        ("decimals", "1.50 2\n", "1.5 2.0", True),
        ("decimals", " 1 \n2", "1\n2\n", True),
        ("decimals", "1\n\n2", "1\n2", False),
        ("decimals", "a  b", "a b", False),
        ("decimals", "0.30000000000000004", "0.3", False),
        ("decimals", "50000000000000001", "50000000000000000", False),
        ("decimals", "1e400", "1e401", False),
        ("decimals", "nan", "nan", True),
        ("decimals", "1 yes", "1.0 yes", False),
        ("decimals", "", "\n", True),
    ],
)
def test_json_values_and_exact_decimals(
    checker: str, actual: str, expected: str, passes: bool
) -> None:
    assert get_checker(checker)(actual, expected) is passes
