"""Rules common to all layouts; our own layout and MultiPL-E's."""

import json

import pytest

from services.data.config import DateRange, LayoutKind, parse_ids
from services.data.importer import collect
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Options, Record, Solution
from shared.datasets import canonicalize
from shared.errors import DataError
from shared.schemas import sha256
from tests.data.layouts.rows import SAMPLES, contest, humaneval, mbpp, multipl_e, own
from tests.data.support import import_failure, imported, write_lines


def read(layout, fields, solutions=3):
    (found,) = LAYOUTS[layout].read(iter([("here", fields)]), Options(solutions=solutions))
    return found.solutions


def test_the_solution_in_python():
    for layout, fields, code in (
        ("humaneval", humaneval(), "def one():\n    return 1\n"),
        ("mbpp", mbpp(11, code="def add(x):\r\n\treturn x\r"), "def add(x):\n\treturn x\n"),
        ("jsonl", own(), "print(2)"),
    ):
        assert read(layout, fields) == (Solution("python", code),)
        assert read(layout, fields, solutions=0) == ()


WITHOUT_SOLUTIONS = ("livecodebench", "multipl_e")


def test_every_layout_has_its_reader():
    assert set(LAYOUTS) == set(LayoutKind) == set(SAMPLES)


def test_the_columns_are_all_that_is_looked_at():
    for layout, fields in SAMPLES.items():
        options = Options(solutions=1)
        columns = LAYOUTS[layout].columns(options)
        narrow = {name: value for name, value in fields.items() if name in columns}
        whole, chosen = LAYOUTS[layout].read(iter([("a", fields), ("a", narrow)]), options)
        assert whole == chosen
        assert isinstance(whole, Record)
        has_solutions = layout not in WITHOUT_SOLUTIONS
        assert len(whole.solutions) == has_solutions
        without = LAYOUTS[layout].columns(Options())
        added = [name for name in columns if name not in without]
        assert len([name for name in added if "incorrect" not in name]) == has_solutions


def test_options_of_other_layouts_are_refused():
    days = DateRange.model_validate({"since": "2024-01-01"})
    options = {"ids": parse_ids("1"), "contest_dates": days, "include_generated": True}
    accepting = {"ids": "mbpp", "contest_dates": "livecodebench"}
    accepting["include_generated"] = "code_contests"
    for layout in LAYOUTS:
        for name, value in options.items():
            if layout == accepting[name]:
                continue
            with pytest.raises(DataError, match=r"remove the option"):
                list(LAYOUTS[layout].read(iter([]), Options(**{name: value})))


def test_a_problem_or_dropped_row_is_there_once():
    dropped = contest("bare", public_tests=[], private_tests=[])
    layout = LAYOUTS["code_contests"]

    def collected(*rows):
        places = [(f"f: row {number}", fields) for number, fields in enumerate(rows, start=1)]
        return collect("f", layout.read(iter(places), Options()))

    problems, left = collected(contest(), dropped, contest("2"))
    assert [problem.problem.problem_id for problem in problems] == ["1_A. One", "2"]
    assert [(one.place, one.problem_id) for one in left] == [("f: row 2", "bare")]
    with pytest.raises(DataError, match="f: row 3: duplicate problem 'bare', also at f: row 2"):
        collected(contest(), dropped, dropped)
    with pytest.raises(DataError, match=r"f: it has no problem \(all 1 rows were dropped: no"):
        collected(dropped)


# Our own layout


def test_fields(tmp_path):
    truth = own()["ground_truth"]
    other = own("demo_2", ground_truth=json.dumps(truth), prompt_sha256="stale")
    first, second = imported("jsonl", tmp_path, own(), other)
    for field in set(own()) - {"reference_solution", "ground_truth"}:
        assert getattr(first, field) == own()[field]
    assert first.tests == second.tests
    assert first.prompt_sha256 == second.prompt_sha256 == sha256(canonicalize("Add öne.\n"))
    for extra in ({"tags": ["a"]}, '{"tags": ["a"]}', None, ""):
        (problem,) = imported("jsonl", tmp_path, own(extra_info=extra))
        assert problem.info.tags == (("a",) if extra else ())


def test_name_and_split_replace_what_the_rows_say_or_lack(tmp_path):
    bare = own("demo_3")
    del bare["dataset"], bare["split"]
    rows = (own(), own("demo_2", dataset="other"), bare)
    problems = imported("jsonl", tmp_path, *rows, name="mine", split="dev")
    assert {(problem.dataset, problem.split) for problem in problems} == {("mine", "dev")}
    assert len(problems) == 3
    source = write_lines(tmp_path / "p.jsonl", [own(), own("x", dataset="other")])
    message = import_failure("jsonl", source, tmp_path)
    assert f"{source}:2: data set 'other', but earlier rows are of 'demo'" in message


def test_a_bad_row_is_named(tmp_path):
    missing = [
        ({field: None}, f"{field}: field required") for field in set(own()) - {"reference_solution"}
    ]
    for changes, cause in (
        *missing,
        ({"ground_truth": {"inputs": ["1"], "outputs": []}}, "1 inputs but 0 outputs"),
        ({"ground_truth": {"inputs": [], "outputs": []}}, "inputs: list should have at least 1"),
        ({"ground_truth": "nonsense"}, "problem 'x' cannot be used: not json"),
        ({"ground_truth": {"test_list": ["a"], "a\nb": 1}}, "extra inputs are not permitted"),
        ({"ground_truth": 3}, "ground_truth"),
        ({"problem_id": ""}, "problem '': problem_id: string should have at least 1"),
        ({"difficulty": 3}, "difficulty: input should be a valid string"),
    ):
        source = write_lines(tmp_path / "p.jsonl", [own(), own("x") | changes])
        message = import_failure("jsonl", source, tmp_path)
        assert message.startswith(f"{source}:2: ")
        assert cause in message.lower(), changes


# MultiPL-E


def test_languages_of_multipl_e(tmp_path):
    for language, name, known in (
        ("cpp", "humaneval_cpp", "cpp"),
        ("js", "humaneval_js", "nodejs"),
        ("java", "humaneval_java", "java"),
        ("rs", "humaneval_rs", "rust"),
        ("go_test.go", "humaneval_go", "go_test"),
    ):
        (problem,) = imported("multipl_e", tmp_path, multipl_e(language=language))
        assert (problem.dataset, problem.problem_id) == (name, "HumanEval_900_add")
        tests = problem.tests
        assert (tests.language, tests.entry_point, tests.cases) == (known, "add", 1)
        assert tests.program_tests.startswith("}\nint main()")
        assert tests.stop_tokens == ["\n}"]
        assert problem.prompt == tests.prompt == multipl_e()["prompt"]
    for rows, words in (
        ([multipl_e(language="cobol")], "language 'cobol' cannot be judged; choose a set"),
        ([multipl_e(), multipl_e(name="mbpp_1")], "'mbpp_cpp', but earlier rows are of"),
        ([multipl_e(tests="")], "program_tests"),
        ([multipl_e(prompt=None)], "prompt"),
    ):
        source = write_lines(tmp_path / "x.jsonl", rows)
        assert words in import_failure("multipl_e", source, tmp_path)


# Numbers of MBPP


def test_malformed():
    for text in ("", "a", "5-", "-5", "1--2", "1,2", "1.5", "\u0663", "9" * 10):
        with pytest.raises(DataError, match=r"--ids .* is not a number or a range; write 11-210"):
            parse_ids(text)
