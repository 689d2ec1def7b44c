import gzip
import json

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.completions import read_completions
from shared.errors import DataError

GOOD = b'{"problem_id": "a", "completion": "x"}\n'


def write(path, content):
    path.write_bytes(content)
    return str(path)


def failure(path):
    with pytest.raises(DataError) as caught:
        list(read_completions(path))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_reads_all_fields_and_ignores_others(tmp_path):
    record = {
        "problem_id": "a",
        "completion": "print(1)",
        "completion_from": "reasoning",
        "reasoning": "Print it.",
        "dataset": "demo",
        "sample_index": 3,
        "output_tokens": 7,
        "output_tokens_from": "tokenizer",
        "prompt_tokens": 5,
        "gen_time": 0.5,
        "finish_reason": "stop",
    }
    path = write(tmp_path / "c.jsonl", json.dumps(record | {"passed": True}).encode() + b"\n")
    assert [completion.model_dump() for completion in read_completions(path)] == [record]


def test_reads_files_as_people_have_them(tmp_path):
    """Each line alone, and what is read: problem, data set and samples' numbers."""
    plain = {"problem_id": "a", "completion": "x"}
    for name, lines, read in [
        ("a byte order mark", b"\xef\xbb\xbf" + GOOD, [("a", None, 0)]),
        ("a long integer that nobody reads", [{**plain, "seed": 10**4299}], [("a", None, 0)]),
        ("settings", [{**plain, "reasoning": {}, "completion_from": 1}], [("a", None, 0)]),
        ("a longer one", GOOD[:-2] + b', "seed": ' + b"7" * 5000 + b"}\n", [("a", None, 0)]),
        (
            "None for absent keys",
            [{**plain, "problem_id": None, "task_id": "b", "sample_index": None, "dataset": None}],
            [("b", None, 0)],
        ),
        (
            "samples that are not numbered",
            [plain, {**plain, "dataset": "d"}, plain, {**plain, "dataset": "d"}],
            [("a", None, 0), ("a", "d", 0), ("a", None, 1), ("a", "d", 1)],
        ),
    ]:
        if isinstance(lines, list):
            lines = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        completions = list(read_completions(write(tmp_path / "c.jsonl", lines)))
        assert [
            (completion.problem_id, completion.dataset, completion.sample_index)
            for completion in completions
        ] == read, name


def test_reads_gzip_and_urls(tmp_path):
    path = write(tmp_path / "c.jsonl.gz", gzip.compress(GOOD * 3))
    assert len(list(read_completions(path))) == 3
    with fsspec.open("memory://completions/c.jsonl", "wb") as file:
        file.write(GOOD)
    assert len(list(read_completions("memory://completions/c.jsonl"))) == 1


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"nonsense\n", "not JSON (Expecting value at column 1)"),
        (b'{"problem_id": "b", "completion": "tor', "torn last line"),
        (b"[1]\n", "a JSON list instead of an object"),
        (b'{"problem_id": "b"}\n', "completion: Field required"),
        (b'{"problem_id": "b", "solution": null}\n', "not a completion: solution is null; "),
        (b'{"problem_id": 3, "completion": "x"}\n', "problem_id: Input should be a valid string"),
        (b'{"problem_id": "b", "completion": "\xff"}\n', "not UTF-8 (byte 36 of the line)"),
        (b"[" * 100_000 + b"\n", "JSON that cannot be used"),
        (b'{"problem_id": "b", "completion": "", "gen_time": NaN}\n',
         "gen_time: Input should be a finite number"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path, line, cause):
    path = write(tmp_path / "c.jsonl", GOOD + line)
    message = failure(path)
    assert message.startswith(f"{path}:2: ")
    assert cause in message


def test_truncated_gzip_names_the_line(tmp_path):
    lines = b"".join(
        json.dumps({"problem_id": str(n), "completion": str(n**50)}).encode() + b"\n"
        for n in range(3000)
    )
    path = write(tmp_path / "c.jsonl.gz", gzip.compress(lines)[:-2000])
    message = failure(path)
    assert "gzip data is truncated" in message
    assert 1 < int(message.removeprefix(f"{path}:").split(":")[0]) <= 3000


@given(content=st.binary(), prefix=st.sampled_from([b"", GOOD]), name=st.sampled_from(["", ".gz"]))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_completions_or_a_data_error(tmp_path, content, prefix, name):
    path = tmp_path / f"fuzz.jsonl{name}"
    content = prefix + content
    path.write_bytes(gzip.compress(content) if name and len(content) % 2 else content)
    try:
        list(read_completions(str(path)))
    except DataError as error:
        assert str(path) in str(error)
        assert len(str(error).splitlines()) == 1
