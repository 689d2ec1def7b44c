"""CodeContests and CodeContests+: tests, splits, names, limits, checkers and submissions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options
from shared.errors import DataError
from shared.schemas import ProblemInfo, StdioTests
from tests.data.layouts.rows import CHECKER, cases, contest, contest_plus
from tests.data.support import import_failure, import_rows, imported, write_lines


def read(fields, kind="code_contests", **options):
    if kind == "code_contests":
        options = {"include_generated": True, **options}
    (found,) = LAYOUTS[kind].read(iter([("here", fields)]), Options(**options))
    return found


def test_fields(tmp_path):
    (problem,) = imported("code_contests", tmp_path, contest())
    assert (problem.dataset, problem.split) == ("codecontests_test", "test")
    assert problem.problem_id == problem.sandbox_id == "1_A. One"
    assert (problem.data_source, problem.sandbox_dataset) == ("codecontests", "code_contests")
    assert (problem.prompt, problem.difficulty) == ("Shout.", "A")
    assert problem.tests == StdioTests(inputs=["a\n", "b\n"], outputs=["a! \n", "b! \n"])
    assert (problem.info.public_tests, problem.info.private_tests) == (1, 1)
    assert problem.quality == ""


def test_generated_tests_are_added_when_wanted(tmp_path):
    (problem,) = imported("code_contests", tmp_path, contest(), include_generated=True)
    assert problem.tests.inputs == ["a\n", "b\n", "c\n", "d\n"]
    for changes, cause in (
        ({"generated_tests": None}, "generated_tests is missing"),
        ({"generated_tests": {"input": ["1"], "output": []}}, "1 inputs but 0 outputs"),
    ):
        source = write_lines(tmp_path / "cc.jsonl", [contest(**changes)])
        assert import_rows("code_contests", source, tmp_path).problems == 1
        message = import_failure("code_contests", source, tmp_path, include_generated=True)
        assert message.startswith(f"{source}:1: generated_tests")
        assert cause in message


def test_the_split_names_the_data_set(tmp_path):
    for split in ("valid", "test", "train"):
        (problem,) = imported("code_contests", tmp_path, contest(), split=split)
        assert (problem.dataset, problem.split) == (f"codecontests_{split}", split)
    source = write_lines(tmp_path / "cc.jsonl", [contest()])
    message = import_failure("code_contests", source, tmp_path, split="dev")
    expected = "--split 'dev' is not a split of CodeContests; choose one of valid, test, train"
    assert message == expected


def test_problems_of_one_name_are_told_apart_by_their_text(tmp_path):
    rows = [contest("p  q\n"), *(contest("p q", description=text) for text in "BC")]
    ids = {one.prompt: one.problem_id for one in imported("code_contests", tmp_path, *rows)}
    assert ids["Shout."] == "p q"
    assert len(set(ids.values())) == 3
    swapped = imported("code_contests", tmp_path, rows[0], rows[2], rows[1])
    assert {one.prompt: one.problem_id for one in swapped} == ids


def test_rows_without_tests_are_dropped_and_listed(tmp_path):
    bare = contest("bare", public_tests=cases(), private_tests=cases())
    source = write_lines(tmp_path / "cc.jsonl", [contest(), bare])
    result = import_rows("code_contests", source, tmp_path / "out")
    assert result.problems == 1
    reason = "no public or private test; --include-generated adds the generated ones"
    assert result.dropped == (Dropped(f"{source}:2", "bare", reason),)
    again = import_rows("code_contests", source, tmp_path / "out", include_generated=True)
    assert (again.problems, again.dropped) == (2, ())
    source = write_lines(tmp_path / "none.jsonl", [bare])
    message = import_failure("code_contests", source, tmp_path / "none")
    assert f"{source}: it has no problem (all 1 rows were dropped: no public or" in message
    assert not (tmp_path / "none").exists()


def test_a_bad_row_is_named(tmp_path):
    uneven = {"input": ["1", "2"], "output": ["1"]}
    for changes, cause in (
        ({"private_tests": uneven}, "private_tests: 2 inputs but 1 outputs"),
        ({"solutions": {"language": [3], "solution": ["a", "b"]}}, ""),
        ({"public_tests": {"input": [1], "output": ["1"]}}, "public_tests.input.0: Input should"),
        ({"public_tests": [{"input": "1", "output": "2"}, {"input": "1"}]}, "public_tests: "),
        ({"public_tests": None}, "public_tests: Field required"),
        ({"description": 3}, "description: Input should be a valid string"),
        ({"name": " "}, "name is empty"),
        ({"public_tests": {"input": ["\ud800"], "output": ["1"]}}, "problem '2' cannot be used"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"memory_limit_bytes": -1}, "memory_limit_bytes"),
    ):
        rows = iter([("a", contest()), ("here", contest("2") | changes)])
        with pytest.raises(DataError) as caught:
            list(LAYOUTS["code_contests"].read(rows, Options(solutions=1)))
        message = str(caught.value)
        assert message.startswith(f"here: {cause}"), (changes, message)
        assert len(message.splitlines()) == 1


def test_all_that_is_known():
    record = read(
        contest(
            cf_tags=["dp", "", " ", "math"],
            time_limit={"seconds": 2, "nanos": 500_000_000},
            memory_limit_bytes=256_000_000,
        )
    )
    assert record.problem.info == ProblemInfo(
        tags=("dp", "math"),
        time_limit=2.5,
        memory_limit=256_000_000,
        public_tests=1,
        private_tests=1,
        generated_tests=2,
    )
    problem = read(contest(memory_limit_bytes=0, cf_tags=[""])).problem
    counts = '{"public_tests": 1, "private_tests": 1, "generated_tests": 2}'
    assert problem.extra_info == counts  # zero and blank are unknown


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
    rows = iter([("here", contest(**lists)), ("here", contest(**structs))])
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


def test_python_3_solutions_come_first_then_cpp():
    lists = {"language": [2, 1, 3, 4, 3, 2], "solution": ["c1", "old", "p1", "java", "p2", "c2"]}
    pairs = zip(*lists.values(), strict=True)
    structs = [{"language": language, "solution": code} for language, code in pairs]
    for solutions in (lists, structs):
        for limit, expected in ((0, ""), (1, "p1"), (3, "p1 p2 c1"), (9, "p1 p2 c1 c2")):
            record = read(contest(solutions=solutions), solutions=limit).solutions
            assert [one.code for one in record] == expected.split()
            assert all(one.language == {"p": "python", "c": "cpp"}[one.code[0]] for one in record)
    submissions = [
        {"language": one, "code": one} for one in ("java", "cpp", "py2", "py3", "CPP", "python3")
    ]
    record = read(contest_plus(correct_submissions=submissions), "code_contests_plus", solutions=4)
    assert [solution.code for solution in record.solutions] == ["py3", "python3", "cpp", "CPP"]


def test_plus_fields(tmp_path):
    (problem,) = imported("code_contests_plus", tmp_path, contest_plus())
    assert (problem.dataset, problem.split) == ("codecontests_plus", "train")
    assert problem.problem_id == problem.sandbox_id == "1_A. One"
    assert problem.tests == StdioTests(
        inputs=["1\n", "3\n"],
        outputs=["2\n", "4\n"],
        checker_source=CHECKER,
        checker_language="cpp",
    )
    info = problem.info
    assert (info.time_limit, info.memory_limit, info.generated_tests) == (2.0, 256 << 20, 2)
    for checker in (None, "", " \n"):
        tests = read(contest_plus(checker=checker), "code_contests_plus").problem.tests
        assert (tests.checker_source, tests.checker_language) == (None, "python")
    for tests in (None, []):
        record = read(contest_plus(test_cases=tests), "code_contests_plus")
        assert "no test cases; the configurations 1x to 5x have them" in record.reason
