"""Layout registry, and rules common to all layouts: ids and solutions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.config import LayoutKind, parse_ids
from services.data.importer import collect
from services.data.layouts import LAYOUTS, get_layout
from services.data.layouts.base import Imported, Options, Solution
from shared.errors import DataError
from tests.data.layouts.test_code_contests import row as contest
from tests.data.layouts.test_code_contests_plus import row as plus
from tests.data.layouts.test_evalplus import humaneval_row, mbpp_row
from tests.data.layouts.test_functions import ROW as HUMANEVAL
from tests.data.layouts.test_functions import row as mbpp
from tests.data.layouts.test_jsonl import row as own
from tests.data.layouts.test_livecodebench import row as livecodebench
from tests.data.layouts.test_multipl_e import row as multipl_e


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


# The tests of HumanEval+ and MBPP+ contain the reference.
REFERENCE_IN_TESTS = ("humaneval_plus", "mbpp_plus")
WITHOUT_SOLUTIONS = ("livecodebench", "multipl_e")
WITH_A_COLUMN = sorted(LAYOUTS.keys() - {*REFERENCE_IN_TESTS, *WITHOUT_SOLUTIONS})


@pytest.mark.parametrize("layout", WITH_A_COLUMN)
def test_columns_name_solutions_only_where_they_are_wanted(layout):
    with_solutions = LAYOUTS[layout].columns(Options(solutions=1))
    without = LAYOUTS[layout].columns(Options())
    assert len(set(with_solutions) - set(without)) == 1
    assert set(without) < set(with_solutions)


SAMPLES = {
    "humaneval": HUMANEVAL,
    "mbpp": mbpp(11, text="Write."),
    "code_contests": contest(solutions={"language": [3], "solution": ["x"]}),
    "code_contests_plus": plus(correct_submissions=[{"language": "py3", "code": "x"}]),
    "jsonl": own(extra_info={"tags": ["a"]}),
    "humaneval_plus": humaneval_row(),
    "mbpp_plus": mbpp_row(),
    "livecodebench": livecodebench(),
    "multipl_e": multipl_e(),
}


def test_every_layout_is_registered():
    assert set(LAYOUTS) == set(LayoutKind) == set(SAMPLES)


def test_an_unknown_layout_names_those_known():
    with pytest.raises(DataError, match=r"'apps' is not a layout .*choose one of humaneval, mbpp"):
        get_layout("apps")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_columns_are_all_that_is_looked_at(layout):
    options = Options(solutions=1)
    fields = SAMPLES[layout]
    columns = LAYOUTS[layout].columns(options)
    narrow = {name: value for name, value in fields.items() if name in columns}
    whole, chosen = LAYOUTS[layout].read(iter([("a", fields), ("a", narrow)]), options)
    assert whole == chosen
    assert isinstance(whole, Imported)
    assert len(whole.solutions) == (layout not in WITHOUT_SOLUTIONS)


@pytest.mark.parametrize("extra", [{"tags": ["a"]}, '{"tags": ["a"]}', None, ""])
def test_our_own_layout_keeps_extra_info(extra):
    (found,) = LAYOUTS["jsonl"].read(iter([("a", own(extra_info=extra))]), Options())
    assert found.problem.info.tags == (("a",) if extra else ())


def test_a_problem_or_dropped_row_is_there_once():
    dropped = contest("bare", public_tests=[], private_tests=[])
    layout = LAYOUTS["code_contests"]

    def collected(*rows):
        places = [(f"f: row {number}", fields) for number, fields in enumerate(rows, start=1)]
        return collect("f", layout.read(iter(places), Options()))

    imported, left = collected(contest(), dropped, contest("2"))
    assert [one.problem.problem_id for one in imported] == ["1_A. One", "2"]
    assert [(one.place, one.problem_id) for one in left] == [("f: row 2", "bare")]
    with pytest.raises(DataError, match="f: row 3: duplicate problem 'bare', also at f: row 2"):
        collected(contest(), dropped, dropped)
    with pytest.raises(DataError, match=r"f: it has no problem \(all 1 rows were dropped: no"):
        collected(dropped)


def test_both_ends_are_in():
    ids = parse_ids("11-210")
    assert [number for number in range(300) if number in ids] == list(range(11, 211))


def test_numbers_and_ranges_mix():
    ids = parse_ids("1, 5,20-22")
    assert [number for number in range(30) if number in ids] == [1, 5, 20, 21, 22]
    assert str(ids) == "1,5,20-22"


@pytest.mark.parametrize("text", ["", "a", "5-", "-5", "1--2", "1,", "1.5", "\u0663", "9" * 10])
def test_malformed(text):
    with pytest.raises(DataError, match=r"--ids .* is not a number or a range; write 11-210"):
        parse_ids(text)


def test_reversed():
    with pytest.raises(DataError, match=r"the range 210-11 ends before it begins"):
        parse_ids("210-11")


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), min_size=1))
def test_text_round_trip(pairs):
    ids = parse_ids(",".join(f"{first}-{last}" for first, last in pairs))
    assert parse_ids(str(ids)) == ids


@given(st.text())
def test_any_text_gives_ids_or_a_data_error(text):
    try:
        parse_ids(text)
    except DataError as error:
        assert len(str(error).splitlines()) == 1
