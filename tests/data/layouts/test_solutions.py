"""Reference solutions: which a layout finds, in which order, and how many."""

import pytest

from services.data.layouts import LAYOUTS
from services.data.layouts.base import Options, Solution
from shared.errors import DataError
from tests.data.test_code_contests import row as contest
from tests.data.test_humaneval import ROW as HUMANEVAL
from tests.data.test_jsonl import row as own
from tests.data.test_mbpp import row as mbpp


def read(layout, fields, solutions=3):
    (imported,) = LAYOUTS[layout].read(iter([("here", fields)]), Options(solutions=solutions))
    return imported.solutions


@pytest.mark.parametrize(
    ("layout", "fields", "code"),
    [
        ("humaneval", HUMANEVAL, "def one():\n    return 1\n"),
        (
            "mbpp",
            mbpp(11, code="def add(x):\r\n\treturn x\r+ 1\n"),
            "def add(x):\n\treturn x\n+ 1\n",
        ),
        ("jsonl", own(), "print(2)"),
    ],
)
def test_the_one_in_python(layout, fields, code):
    assert read(layout, fields) == (Solution("python", code),)
    assert read(layout, fields, solutions=0) == ()


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        ("humaneval", {name: HUMANEVAL[name] for name in HUMANEVAL if "solution" not in name}),
        ("mbpp", mbpp(11, code="")),
        ("mbpp", mbpp(11, code=None)),
        ("jsonl", own(reference_solution=" \n")),
        ("code_contests", contest()),
        ("code_contests", contest(solutions=None)),
        ("code_contests", contest(solutions=[])),
        ("code_contests", contest(solutions={"language": [1, 4], "solution": ["a", "b"]})),
    ],
)
def test_none_of_them(layout, fields):
    assert read(layout, fields) == ()


FOUND = {"language": [2, 1, 3, 4, 3, 2], "solution": ["c1", "old", "p1", "java", "p2", "c2"]}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, ""), (1, "p1"), (3, "p1 p2 c1"), (9, "p1 p2 c1 c2")],
)
@pytest.mark.parametrize("as_structs", [False, True])
def test_contests_give_python_3_first_then_cpp(limit, expected, as_structs):
    solutions = FOUND
    if as_structs:
        pairs = zip(FOUND["language"], FOUND["solution"], strict=True)
        solutions = [{"language": language, "solution": code} for language, code in pairs]
    found = read("code_contests", contest(solutions=solutions), limit)
    assert [one.code for one in found] == expected.split()
    languages = {"p": "python", "c": "cpp"}
    assert [one.language for one in found] == [languages[one.code[0]] for one in found]


def test_lists_of_differing_lengths_are_named():
    fields = contest(solutions={"language": [3], "solution": ["a", "b"]})
    with pytest.raises(DataError, match=r"here: problem .* solutions has 1 languages but 2"):
        read("code_contests", fields)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_name_solutions_only_where_they_are_wanted(layout):
    with_solutions = LAYOUTS[layout].columns(Options(solutions=1))
    without = LAYOUTS[layout].columns(Options())
    assert len(set(with_solutions) - set(without)) == 1
    assert set(without) < set(with_solutions)
