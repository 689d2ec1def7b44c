"""CodeContests layout: tests, splits, names, and facts in ``extra_info``."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.importer import import_dataset
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options
from services.data.layouts.code_contests import problem_id_of
from shared.datasets import read_dataset
from shared.errors import DataError
from shared.schemas import ProblemInfo, StdioTests
from tests.data.support import import_failure, write_lines


def cases(*names):
    return {"input": [f"{name}\n" for name in names], "output": [f"{name}! \n" for name in names]}


def row(name="1_A. One", **changes):
    return {
        "name": name,
        "description": "Shout.",
        "difficulty": 7,
        "source": 2,
        "public_tests": cases("a"),
        "private_tests": cases("b"),
        "generated_tests": cases("c", "d"),
        **changes,
    }


def imported(source, output, **options):
    return read_dataset(str(import_dataset("code_contests", source, output, **options).path))


def test_fields(tmp_path):
    source = write_lines(tmp_path / "cc.jsonl.gz", [row()])
    (problem,) = imported(source, tmp_path)
    assert (problem.dataset, problem.split) == ("codecontests_test", "test")
    assert problem.problem_id == problem.sandbox_id == "1_A. One"
    assert (problem.data_source, problem.sandbox_dataset) == ("codecontests", "code_contests")
    assert (problem.prompt, problem.difficulty) == ("Shout.", "A")
    assert problem.tests == StdioTests(inputs=["a\n", "b\n"], outputs=["a! \n", "b! \n"])
    assert (problem.info.public_tests, problem.info.private_tests) == (1, 1)
    assert problem.quality == ""


def test_generated_tests_are_added_when_wanted(tmp_path):
    source = write_lines(tmp_path / "cc.jsonl", [row()])
    (problem,) = imported(source, tmp_path, include_generated=True)
    assert problem.tests.inputs == ["a\n", "b\n", "c\n", "d\n"]


def test_generated_tests_may_lack_when_not_wanted(tmp_path):
    bare = row()
    del bare["generated_tests"]
    source = write_lines(tmp_path / "cc.jsonl", [bare])
    assert len(imported(source, tmp_path)) == 1
    message = import_failure("code_contests", source, tmp_path, include_generated=True)
    assert f"{source}:1: generated_tests: Field required" in message


@pytest.mark.parametrize("split", ["valid", "test", "train"])
def test_the_split_names_the_data_set(tmp_path, split):
    source = write_lines(tmp_path / "cc.jsonl", [row()])
    (problem,) = imported(source, tmp_path, split=split)
    assert (problem.dataset, problem.split) == (f"codecontests_{split}", split)


def test_another_split_is_refused(tmp_path):
    source = write_lines(tmp_path / "cc.jsonl", [row()])
    message = import_failure("code_contests", source, tmp_path, split="dev")
    expected = "--split 'dev' is not a split of CodeContests; choose one of valid, test, train"
    assert message == expected
    assert "--ids" in import_failure("code_contests", source, tmp_path, ids="1")


@pytest.mark.parametrize(
    ("value", "difficulty"),
    [(0, "unknown"), (3, "hard"), (28, "V"), (29, "29"), (-1, "-1"), ("B", "B"), (None, "unknown")],
)
def test_difficulties(tmp_path, value, difficulty):
    source = write_lines(tmp_path / "cc.jsonl", [row(difficulty=value)])
    assert imported(source, tmp_path)[0].difficulty == difficulty


def test_problems_of_one_name_are_told_apart_by_their_text(tmp_path):
    rows = [row("p  q\n"), row("p q", description="B"), row("p q", description="C")]
    first = imported(write_lines(tmp_path / "cc.jsonl", rows), tmp_path)
    swapped = [rows[0], rows[2], rows[1]]
    second = imported(write_lines(tmp_path / "cc.jsonl", swapped), tmp_path)
    ids = [one.problem_id for one in first]
    assert ids[0] == "p q" == problem_id_of(" p q")
    assert len(set(ids)) == 3
    assert {one.prompt: one.problem_id for one in first} == {
        one.prompt: one.problem_id for one in second
    }


def test_the_same_problem_twice_names_both_lines(tmp_path):
    source = write_lines(tmp_path / "cc.jsonl", [row(), row("2"), row()])
    message = import_failure("code_contests", source, tmp_path)
    assert f"{source}:3: duplicate problem '1_A. One', also at {source}:1" in message


def test_rows_without_tests_are_dropped_and_listed(tmp_path):
    bare = row("bare", public_tests=cases(), private_tests=cases())
    source = write_lines(tmp_path / "cc.jsonl", [row(), bare])
    result = import_dataset("code_contests", source, tmp_path / "out")
    assert result.problems == 1
    assert result.dropped_path == str(tmp_path / "out" / "codecontests_test.dropped.jsonl")
    (line,) = Path(result.dropped_path).read_text().splitlines()
    reason = "no public or private test; --include-generated adds the generated ones"
    assert json.loads(line) == {"place": f"{source}:2", "problem_id": "bare", "reason": reason}
    assert [one.reason for one in result.dropped] == [reason]

    again = import_dataset("code_contests", source, tmp_path / "out", include_generated=True)
    assert (again.problems, again.dropped, again.dropped_path) == (2, (), None)
    assert not Path(result.dropped_path).exists()


def test_nothing_but_dropped_rows_is_an_error(tmp_path):
    empty = row("x", public_tests=cases(), private_tests=cases(), generated_tests=cases())
    source = write_lines(tmp_path / "cc.jsonl", [empty])
    message = import_failure("code_contests", source, tmp_path / "out", include_generated=True)
    assert f"{source}: it has no problem (all 1 rows were dropped: no public, private or" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (
            {"private_tests": {"input": ["1", "2"], "output": ["1"]}},
            "problem '2': private_tests has 2 inputs but 1 outputs",
        ),
        ({"public_tests": {"input": [1], "output": ["1"]}}, "public_tests.input.0: Input should"),
        ({"public_tests": None}, "public_tests: Field required"),
        ({"description": 3}, "description: Input should be a valid string"),
        ({"name": " "}, "name is empty"),
        ({"public_tests": {"input": ["\ud800"], "output": ["1"]}}, "problem '2' cannot be used"),
    ],
)
def test_a_bad_row_is_named(tmp_path, changes, cause):
    source = write_lines(tmp_path / "cc.jsonl", [row(), row("2") | changes])
    assert f"{source}:2: {cause}" in import_failure("code_contests", source, tmp_path)


def test_generated_lists_of_differing_lengths_count_only_when_wanted(tmp_path):
    source = write_lines(
        tmp_path / "cc.jsonl", [row(generated_tests={"input": ["1"], "output": []})]
    )
    assert len(imported(source, tmp_path)) == 1
    message = import_failure("code_contests", source, tmp_path, include_generated=True)
    assert f"{source}:1: problem '1_A. One': generated_tests has 1 inputs but 0 outputs" in message


def put(path, rows):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def test_parquet_gives_what_json_lines_give(tmp_path):
    rows = [row(), row("2", private_tests=cases())]
    lines = imported(write_lines(tmp_path / "cc.jsonl", rows), tmp_path, include_generated=True)
    source = put(tmp_path / "cc" / "one.parquet", rows)
    assert imported(source, tmp_path, include_generated=True) == lines


def test_a_folder_of_shards(tmp_path):
    put(tmp_path / "shards" / "test-1.parquet", [row("2")])
    put(tmp_path / "shards" / "test-0.parquet", [row("1")])
    found = imported(str(tmp_path / "shards"), tmp_path)
    assert [one.problem_id for one in found] == ["1", "2"]


def test_parquet_errors_name_file_and_row(tmp_path):
    bad = row("2", public_tests={"input": ["1"], "output": []})
    source = put(tmp_path / "a.parquet", [row(), bad])
    message = import_failure("code_contests", source, tmp_path / "out")
    assert f"{source}: row 2: problem '2': public_tests has 1 inputs but 0 outputs" in message
    source = put(tmp_path / "b.parquet", [{"name": "x", "description": "y"}])
    message = import_failure("code_contests", source, tmp_path / "out")
    assert message.startswith(f"{source}: row 1: public_tests: Field required")


@pytest.mark.real_data
def test_the_real_file(real_data, tmp_path):
    source = str(real_data / "code_contests_test_40.jsonl.gz")
    result = import_dataset("code_contests", source, tmp_path)
    problems = read_dataset(str(result.path))
    assert (len(problems), result.dropped) == (40, ())
    assert problems[0].problem_id == "1575_A. Another Sorting Problem"
    # Codeforces' letter is both in the name and in the difficulty, but for one slip in the data.
    letters = [(one.problem_id.split("_")[1], one.difficulty) for one in problems]
    differing = [(name, letter) for name, letter in letters if not name.startswith(letter)]
    assert differing == [("L. Longest Array Deconstruction", "M")]
    (tmp_path / "all").mkdir()
    everything = imported(source, tmp_path / "all", include_generated=True)
    assert len(everything) == 40
    assert sum(len(one.tests.inputs) for one in problems) < 200
    assert sum(len(one.tests.inputs) for one in everything) > 7500


def read(fields, **options):
    rows = iter([("here", fields)])
    (found,) = LAYOUTS["code_contests"].read(rows, Options(include_generated=True, **options))
    return found


def info(**changes):
    return read(row(**changes)).problem.info


def test_all_that_is_known():
    found = info(
        cf_tags=["dp", "", " ", "math"],
        time_limit={"seconds": 2, "nanos": 500_000_000},
        memory_limit_bytes=256_000_000,
    )
    assert found == ProblemInfo(
        tags=("dp", "math"),
        time_limit=2.5,
        memory_limit=256_000_000,
        public_tests=1,
        private_tests=1,
        generated_tests=2,
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ({"seconds": 0, "nanos": 0}, None),
        ({"seconds": None, "nanos": None}, None),
        ({"seconds": 3}, 3.0),
        ({"seconds": 3, "nanos": None}, 3.0),
        (1.5, 1.5),
        (2, 2.0),
    ],
)
def test_time_limits(value, seconds):
    assert info(time_limit=value).time_limit == seconds


@pytest.mark.parametrize(
    "changes",
    [
        {"time_limit": "2s"},
        {"time_limit": {"seconds": -1, "nanos": 0}},
        {"time_limit": float("nan")},
        {"memory_limit_bytes": -1},
        {"cf_tags": "dp"},
        {"cf_tags": ["\ud800"]},
    ],
)
def test_what_cannot_be_is_named(changes):
    with pytest.raises(DataError, match=r"^here: ") as caught:
        read(row(**changes))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "extra_info" in message or next(iter(changes)) in message


def test_zero_and_blank_are_unknown():
    problem = read(row(memory_limit_bytes=0, cf_tags=[""])).problem
    counts = '{"public_tests": 1, "private_tests": 1, "generated_tests": 2}'
    assert problem.extra_info == counts


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
    rows = iter([("here", row(**lists)), ("here", row(**structs))])
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


def test_a_struct_without_one_side_is_named():
    with pytest.raises(DataError, match="public_tests has 2 inputs but 1 outputs"):
        read(row(public_tests=[{"input": "1", "output": "2"}, {"input": "1"}]))
