from typing import get_args

import pytest

from services.data.config import LayoutName
from services.data.layouts import LAYOUTS, LayoutKind
from services.data.layouts.base import Imported, Options
from services.data.layouts.collect import collect
from services.data.layouts.registry import get_layout
from shared.errors import DataError
from tests.data.test_code_contests import row as contest
from tests.data.test_humaneval import ROW as HUMANEVAL
from tests.data.test_jsonl import row as own
from tests.data.test_mbpp import row as mbpp

SAMPLES = {
    "humaneval": HUMANEVAL,
    "mbpp": mbpp(11, text="Write."),
    "code_contests": contest(solutions={"language": [3], "solution": ["x"]}),
    "jsonl": own(extra_info={"tags": ["a"]}),
}


def test_a_configuration_may_name_every_layout_and_no_other():
    assert set(get_args(LayoutName)) == set(LAYOUTS) == set(LayoutKind) == set(SAMPLES)


def test_an_unknown_layout_names_those_known():
    with pytest.raises(DataError, match=r"'apps' is no layout .*choose humaneval, mbpp"):
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
    assert len(whole.solutions) == 1


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
    with pytest.raises(DataError, match=r"f: no problem in it \(all 1 rows were dropped: no"):
        collected(dropped)
