"""Parsing of a sandbox's MBPP prompt into text and tests."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.rows.sandbox_layouts import (
    BEFORE_TESTS,
    PREFIX,
    content_and_tests,
    split_tests,
)
from shared.errors import DataError

TESTS = [
    "assert f(1) == 2",
    "assert f(1) == 2 ",
    "assert f('a;b') == [1,\n 2]",
    "assert f('''a\n\nassert f(2)\n''') == 1",
    "assert f(1, \\\n 2)",
    "assert f(1); assert f(2)",
    "x = 1\nassert f(x)",
    "# about it\n\nassert f(1)  # so",
    "for n in range(3):\n    assert f(n)\nassert True",
    "assert f(1)\r",
    "assert f('\\d') == 'ä\u2028'",
]


@given(st.lists(st.sampled_from(TESTS)))
def test_tests_come_apart_as_they_were_joined(tests: list[str]):
    assert split_tests("\n".join(tests)) == tests


@given(st.text(alphabet="a1=;:#\\'\"() \n\r\f\0", max_size=40) | st.text())
def test_no_character_is_lost(code: str):
    tests = split_tests(code)
    if tests:
        assert "\n".join(tests) == code
        assert all(ast.parse(test) for test in tests)


@pytest.mark.parametrize(
    ("joined", "tests"),
    [
        ("", []),
        ("\n# nothing\n", []),
        ("f(1)\nf(2)", ["f(1)\nf(2)"]),
        ("assert 1\nf()", ["assert 1\nf()"]),
        ("assert 1; x = (\n2)\nassert x", ["assert 1; x = (\n2)\nassert x"]),
        ("assert 1\rassert 2", ["assert 1\rassert 2"]),
        ("assert f(", None),
        ("print 1", None),
        ("assert '\0'", None),
        ("assert '\ud800'", None),
        ("assert " + "(" * 10_000, None),
        ("assert " + "-" * 100_000 + "1", None),
    ],
)
def test_what_is_no_list_of_assertions(joined: str, tests: list[str] | None):
    assert split_tests(joined) == tests


@given(
    st.lists(st.text() | st.just(BEFORE_TESTS)),
    st.lists(st.sampled_from(TESTS), min_size=1),
)
def test_text_and_tests_come_back(words: list[str], tests: list[str]):
    """Even where the text holds the sentence that stands between them."""
    text = "§".join(["Write it.", *words, "End."])
    prompt = f"{PREFIX}{text}{BEFORE_TESTS}" + "\n".join(tests)
    assert content_and_tests("here", prompt) == (text, tests)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        PREFIX,
        f"{PREFIX}Write it.",
        f"Write it.{BEFORE_TESTS}assert 1",
        f"{PREFIX}Write it.{BEFORE_TESTS}assert 1\n[BEGIN]\n",
    ],
)
def test_another_form_is_refused(prompt: str):
    with pytest.raises(DataError, match="here: the prompt does not have SandboxFusion's format"):
        content_and_tests("here", prompt)
