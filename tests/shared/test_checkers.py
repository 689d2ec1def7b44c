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
    ("actual", "expected", "passes"),
    [
        ("[1,2]\n", "[1, 2]", True),
        ("2\n", "2.0", True),
        ("abc\n", '"abc"', True),
        ('"abc"', '"abc"', True),
        ("two\nlines\n", '"two\\nlines"', True),
        ("true", "true", True),
        ("debugging\n[1]\n", "[1]", False),
        ("", '""', True),
        ('{"b": 1, "a": 2}', '{"a": 2, "b": 1}', True),
        ("not json", "not json", True),
        ("[" * 100_000, "[1]", False),
        ("9" * 5000, "1", False),
    ],
)
def test_json_values(actual: str, expected: str, passes: bool) -> None:
    assert get_checker("json")(actual, expected) is passes


@pytest.mark.parametrize(
    ("actual", "expected", "passes"),
    [
        ("1.50 2\n", "1.5 2.0", True),
        (" 1 \n2", "1\n2\n", True),
        ("1\n\n2", "1\n2", False),
        ("a  b", "a b", False),
        ("0.30000000000000004", "0.3", False),
        ("50000000000000001", "50000000000000000", False),
        ("1e400", "1e401", False),
        ("nan", "nan", True),
        ("1 yes", "1.0 yes", False),
        ("", "\n", True),
    ],
)
def test_exact_decimals(actual: str, expected: str, passes: bool) -> None:
    assert get_checker("decimals")(actual, expected) is passes
