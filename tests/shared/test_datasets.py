import hashlib
import json
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.data.records import write_dataset
from shared.datasets import (
    CANONICAL_VERSION,
    COLUMNS,
    canonicalize,
    parquet_files,
    read_dataset,
    read_datasets,
    read_row_group,
    row_group_names,
)
from shared.errors import DataError
from shared.schemas import Problem, SandboxFusionTests

STDIO = json.dumps({"inputs": ["1"], "outputs": ["2"]})


def row(problem_id="p1", **changes):
    return {
        "dataset": "demo",
        "split": "test",
        "problem_id": problem_id,
        "prompt": "Add one.",
        "data_source": "demo",
        "ground_truth": STDIO,
        "difficulty": "unknown",
        "sandbox_dataset": "code_contests",
        "sandbox_id": problem_id,
        "prompt_sha256": "0" * 64,
        **changes,
    }


def problem(problem_id="p1", **changes):
    return Problem(**row(problem_id, **changes))


def put(path, rows, schema=None):
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return str(path)


def failure(read, *arguments):
    with pytest.raises(DataError) as caught:
        read(*arguments)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


_text = st.text(st.characters(exclude_categories=["Cs"]))
_name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_stdio = st.lists(st.tuples(_text, _text), min_size=1, max_size=3).map(
    lambda cases: json.dumps({"inputs": [a for a, _ in cases], "outputs": [b for _, b in cases]})
)
_problems = st.fixed_dictionaries(
    dict.fromkeys(COLUMNS, _text)
    | dict.fromkeys(("dataset", "problem_id", "data_source", "prompt_sha256"), _name)
    | {"ground_truth": _stdio}
).map(Problem.model_validate)


@given(
    st.lists(_problems, min_size=1, max_size=5, unique_by=lambda one: (one.dataset, one.problem_id))
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(tmp_path, problems):
    path = str(tmp_path / "a.parquet")
    write_dataset(path, problems)
    assert read_dataset(path) == problems


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.parquet"
    write_dataset(str(path), [problem()])
    message = failure(write_dataset, str(path), [problem("p2"), problem("p3", prompt="\ud800")])
    assert f"{path}: a text has a character that UTF-8 cannot encode" in message
    assert read_dataset(str(path)) == [problem()]
    assert [found.name for found in tmp_path.iterdir()] == ["a.parquet"]


def test_chat_prompts_give_their_last_user_message(tmp_path):
    chat = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": "last"},
        {"role": "assistant", "content": "Sure"},
    ]
    path = put(tmp_path / "a.parquet", [row(prompt=chat)])
    assert read_dataset(path)[0].prompt == "last"


def test_the_prompt_may_be_in_a_column_of_another_name(tmp_path):
    path = put(tmp_path / "a.parquet", [row(question="How?"), row("p2", question="Why?  \r\n")])
    one, two = read_datasets([path], "question")
    assert [one.prompt, two.prompt] == ["How?", "Why?  \r\n"]
    # The column prompt_sha256 is of another text.
    assert one.prompt_sha256 == hashlib.sha256(b"How?").hexdigest()
    assert two.prompt_sha256 == hashlib.sha256(b"Why?").hexdigest()
    assert read_dataset(path)[0] == problem()


def test_a_table_of_which_no_problems_can_be_made_is_refused_with_the_way_to_import_it(tmp_path):
    for column in ("problem_id", "prompt", "ground_truth"):
        values = dict.fromkeys(("problem_id", "prompt", "ground_truth", "further"), "x")
        del values[column]
        path = put(tmp_path / "a.parquet", [values])
        message = failure(read_dataset, path)
        assert f"{path}: no column {column!r}; it has: {', '.join(values)}; needed are" in message
        assert f"`plumb data import LAYOUT --source {path} --output data/eval`" in message


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("problem_id", b"x", "binary"),
        ("prompt", ["x"], "list<element: string>"),
        ("ground_truth", ["x"], "list<element: string>"),
    ],
)
def test_a_column_of_another_type_is_named(tmp_path, column, value, kind):
    path = put(tmp_path / "a.parquet", [row(**{column: value})])
    assert f"{path}: column {column!r} has type {kind}" in failure(read_dataset, path)


def test_a_row_without_what_every_row_needs_is_named(tmp_path):
    for column in ("problem_id", "prompt", "ground_truth"):
        for value in (None, "") if column == "problem_id" else (None,):
            empty = {"sandbox_id": "", column: value}
            path = put(tmp_path / "a.parquet", [row(), row("p2") | empty])
            message = failure(read_dataset, path)
            assert message.startswith(f"{path}: row 2: ")
            assert f"has no {column!r}" in message
            alone = put(tmp_path / "b.parquet", [row() | empty])
            assert f"has no {column!r}" in failure(read_dataset, alone)


# Tables of others

FIVE = {"prompt": "Add one.", "ground_truth": STDIO, "problem_id": "p1"}


def test_five_columns_are_a_data_set(tmp_path):
    values = FIVE | {"data_source": "codecontests", "difficulty": 7}
    (read,) = read_dataset(put(tmp_path / "five.parquet", [values]))
    assert (read.dataset, read.data_source) == ("codecontests", "codecontests")
    assert (read.problem_id, read.difficulty, read.split) == ("p1", "7", "")
    assert read.prompt_sha256 == hashlib.sha256(b"Add one.").hexdigest()
    (group,) = row_group_names(str(tmp_path / "five.parquet"))
    assert group == [("codecontests", "p1")]
    assert [*read_row_group(str(tmp_path / "five.parquet"), 0)] == [read]


def test_a_data_set_is_named_by_its_source_or_by_a_file_that_says_more(tmp_path):
    for file, source, name in [
        ("a.parquet", "mbpp", "mbpp"),
        ("mbpp_reg.parquet", "mbpp", "mbpp_reg"),
        ("codecontests_test.parquet", "deepmind/code_contests", "codecontests_test"),
        ("a.parquet", None, "a"),
        ("a.parquet", "", "a"),
    ]:
        path = put(tmp_path / file, [FIVE | {"data_source": source}])
        assert read_dataset(path)[0].dataset == name, (file, source)
    assert read_dataset(put(tmp_path / "b.parquet", [FIVE]))[0].data_source == "b"


def test_tests_may_be_where_verl_has_them(tmp_path):
    chat = [{"role": "user", "content": "Add one."}]
    tests = {"inputs": ["1"], "outputs": ["2"]}
    rows = [
        {
            "prompt": chat,
            "data_source": "code",
            "reward_model": {"style": "rule", "ground_truth": STDIO},
            "extra_info": {"index": 5},
        }
    ] * 2
    problems = read_dataset(put(tmp_path / "a.parquet", rows))
    assert [(problem.dataset, problem.problem_id) for problem in problems] == [
        ("code", "1"),
        ("code", "2"),
    ]
    assert problems[0].tests.model_dump(include=set(tests)) == tests
    path = put(tmp_path / "groups.parquet", rows)
    pq.write_table(pq.read_table(path), path, row_group_size=1)
    assert row_group_names(path) == [[("code", "1")], [("code", "2")]]
    assert [problem.problem_id for problem in read_row_group(path, 1)] == ["2"]
    for extra in ({"problem_id": "x"}, {"task_id": 7}):
        rows = [{**rows[0], "extra_info": extra}]
        (read,) = read_dataset(put(tmp_path / "a.parquet", rows))
        assert read.problem_id == str(*extra.values())
    (read,) = read_dataset(put(tmp_path / "a.parquet", [FIVE | {"ground_truth": tests}]))
    assert read.tests == problems[0].tests


def test_a_reference_to_tests_is_no_data_set(tmp_path):
    model = {"ground_truth": "plumbline:demo/p1#0123456789abcdef"}
    path = put(tmp_path / "a.parquet", [{"prompt": "Add.", "reward_model": model}])
    assert "give that file with --data" in failure(read_dataset, path)


def test_a_check_function_gets_the_code_of_its_prompt(tmp_path):
    code = "from typing import List\n\ndef add(x: List[int]):\n    pass\n"
    truth = json.dumps({"test": "def check(f):\n    assert f(1)", "entry_point": "add"})
    for prompt in (code, f"```python\n{code}```\n\nComplete it.", f"Complete this.\n\n{code}"):
        values = FIVE | {"prompt": prompt, "ground_truth": truth}
        (read,) = read_dataset(put(tmp_path / "a.parquet", [values]))
        assert read.prompt == prompt
        assert (read.tests.entry_point, read.tests.prompt) == ("add", code)


def test_a_row_without_tests_is_one_of_sandboxfusions_data_set(tmp_path):
    values = {"prompt": "Add.", "problem_id": 11, "sandbox_dataset": "mbpp", "sandbox_id": 11}
    for more in ({}, {"ground_truth": None}, {"ground_truth": ""}):
        (read,) = read_dataset(put(tmp_path / "a.parquet", [values | more]))
        assert read.tests == SandboxFusionTests(sandbox_dataset="mbpp", sandbox_id="11")


def test_a_ground_truth_that_does_not_parse_is_named(tmp_path):
    truth = '{"test_list": ["assert 1"], "a\\nb": 1}'
    path = put(tmp_path / "a.parquet", [row(), row("p2", ground_truth=truth)])
    message = failure(read_dataset, path)
    assert f"{path}: row 2: 'demo'/'p2': ground_truth cannot be used (" in message
    assert "Extra inputs are not permitted" in message


def test_duplicates_across_files_name_both(tmp_path):
    first = put(tmp_path / "a.parquet", [row("p0"), row()])
    second = put(tmp_path / "b.parquet", [row()])
    message = failure(read_datasets, [first, second])
    assert f"{second}: row 1: duplicate problem 'demo'/'p1', also in {first}: row 2" in message


def test_a_truncated_parquet_is_named(tmp_path):
    path = put(tmp_path / "a.parquet", [row()])
    content = (tmp_path / "a.parquet").read_bytes()
    for end in range(0, len(content), 97):
        (tmp_path / "a.parquet").write_bytes(content[:end])
        assert failure(read_dataset, path).startswith(f"{path}: ")


def test_folders_are_read_sorted(tmp_path):
    folder = tmp_path / "some [sets]"
    (folder / "c.parquet").mkdir(parents=True)
    put(folder / "b.parquet", [row("p2")])
    put(folder / "a.parquet", [row("p1")])
    (folder / "notes.txt").write_text("")
    put(tmp_path / "elsewhere", [row("p3")])
    (folder / "d.parquet").symlink_to(tmp_path / "elsewhere")
    found = [dataset.problem_id for dataset in read_datasets([f"{folder}/"])]
    assert found == ["p1", "p2", "p3"]


def test_a_folder_without_parquet_is_named(tmp_path):
    assert failure(parquet_files, str(tmp_path)).startswith(
        f"{tmp_path}: the folder has no *.parquet"
    )
    assert "nosuch://x: cannot be read" in failure(read_datasets, ["nosuch://x"])


# The canonical form of prompts


# Characters that the rules are about, often next to each other.
_TRICKY = st.text(
    st.sampled_from("\r\n\t \x0b\x0c\x85\u2000\u2028ae\u0301\u212b\u0345\ud800`~\ufeff")
)


@pytest.mark.parametrize(
    ("prompt", "canonical"),
    [
        ("a\r\nb\rc\n", "a\nb\nc"),
        ("\n \n\t\na  \n\n b\t\n\n", "a\n\n b"),
        ("    x  =  1\n\ty  =  2", "    x  =  1\n\ty  =  2"),
        ("in  prose \t runs\u00a0\u00a0become one", "in prose runs become one"),
        ("  a  b", "  a b"),
        ("one\n\n \n\ntwo", "one\n\ntwo"),
        ("a  b\n```  py\nx  = 1\n\n\ny\n```\na  b", "a b\n```  py\nx  = 1\n\n\ny\n```\na b"),
        ("~~~\na  b", "~~~\na  b"),
        ("\ufeffa", "a"),
        ("e\u0301", "\u00e9"),
        ("", ""),
        (" \r\n ", ""),
    ],
)
def test_what_it_changes(prompt, canonical):
    assert canonicalize(prompt) == canonical


@given(_TRICKY | st.text())
@example("\r\r\n\n\r")
def test_idempotent(prompt):
    once = canonicalize(prompt)
    assert canonicalize(once) == once


@given(_TRICKY | st.text())
def test_the_result_is_in_canonical_form(prompt):
    canonical = canonicalize(prompt)
    assert "\r" not in canonical
    assert unicodedata.is_normalized("NFC", canonical)
    lines = canonical.split("\n")
    assert all(line == line.rstrip() for line in lines)
    assert canonical == "" or (lines[0] and lines[-1])


def test_the_version_is_pinned_to_the_result():
    """A change of the result needs a new version, and then this test changes too."""
    assert CANONICAL_VERSION == "2"
    assert canonicalize("\n A\u0301  d \r\n\tb  c \r\r\r\re") == " \u00c1 d\n\tb  c\n\ne"
