"""Normalized views: names and code, compared independently of renaming."""

import pytest

from services.data.overlap.views import PLACEHOLDER, code_tokens, own_names, without_names

CODE = '''\
class Shelf:
    """Where the books of Shelf stand."""

    def put(self, book: list, *others, room=len("x")):
        total, rest = divmod(room, 2)
        self.books = [one for one in others if one]
'''


def test_functions_classes_parameters_and_variables_are_names():
    bound = {"Shelf", "put", "self", "book", "others", "room", "total", "rest", "one"}
    assert own_names(CODE) == bound


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"    {line}" for line in CODE.split("\n")),
        CODE.replace("\n", "\r\n"),
        f"Mend this:\n\n```python\n{CODE}```\n\nThank you.",
    ],
    ids=["indented", "CRLF", "fenced"],
)
def test_names_are_found_wherever_the_code_stands(text):
    assert own_names(text) == own_names(CODE)


def test_builtins_and_attributes_are_nobodys_names():
    tests = "Mind this:\nassert sorted(pick(a.find(2))) == [1]\n>>> len(drop([]))\n"
    assert own_names(tests) == {"pick", "drop"}


def test_code_that_does_not_parse_still_has_its_definitions():
    assert own_names("def pick(a, b):\n    print 'Python 2'\nclass Old: pass") == {"pick", "Old"}


def test_names_are_replaced_in_prose_as_well():
    assert without_names('def f(x):\n    """Double x; fx stays."""') == (
        f'def {PLACEHOLDER}({PLACEHOLDER}):\n    """Double {PLACEHOLDER}; fx stays."""'
    )


@pytest.mark.parametrize("text", ["", "Print the sum of n numbers.", "x = 1", "assert 1 == 1"])
def test_prose_has_no_names(text):
    assert without_names(text) is None


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
