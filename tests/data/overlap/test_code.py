import pytest

from services.data.overlap.code import code_tokens

ONE = """\
def total(values):
    result = 0
    for value in values:
        result += value.weight * len(values)
    return result
"""
OTHER = """\
def f(xs):  # adds up
    '''Says what it does.'''

    s = 0
    for x in xs: s += x.weight*len(xs)
    return s
"""


def test_names_comments_and_layout_do_not_matter():
    assert code_tokens(ONE, 13) == code_tokens(OTHER, 13)


@pytest.mark.parametrize(
    "change",
    [
        ("= 0", "= 1"),
        ("+=", "-="),
        ("weight", "height"),
        ("len", "max"),
        ("return", "print"),
        ("result +=", "value +="),
    ],
)
def test_what_code_does_matters(change):
    assert code_tokens(ONE, 13) != code_tokens(ONE.replace(*change), 13)


def test_code_in_front_changes_nothing_beyond_its_reach():
    in_front = code_tokens(f"import sys\nresult = sys.stdin.read()\n\n\n{ONE}", 5)
    assert in_front[-len(code_tokens(ONE, 5)) :] == code_tokens(ONE, 5)


def test_strings_are_literals():
    assert code_tokens("print('a b')", 13) == [b"print", b"(", b"'a b'", b")"]
