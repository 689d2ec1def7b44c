"""`data.output_path`: a run's completions in verl's layout, which `main_eval` reads."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import fsspec
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runner.sources import match_completions
from services.training.verl_tables import ResponsesFile
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import Config, load_config
from shared.errors import ConfigError, OutputError
from shared.finished_run import FinishedRun
from shared.prompts import chat_messages
from shared.run_record import RunRecord
from shared.schemas import Generation, SampleId, is_encodable, parse_ground_truth
from tests.shared.ledgers import generation, problem

PROBLEMS = [
    problem("p1", split="valid"),
    problem("p/2 ä"),
    problem("p1", "d2", ground_truth=json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})),
    problem("never", "d2"),
]
ODD = "a\u2028b\x00 ```python"
GENERATIONS = [
    generation(SampleId("d1", "p1", 0), "right"),
    generation(SampleId("d1", "p1", 1), "", error="timeout"),
    generation(SampleId("d1", "p1", 2), "wrong"),
    generation(SampleId("d1", "p/2 ä"), ODD),
    generation(SampleId("d2", "p1"), ""),
    generation(SampleId("d2", "never"), "", error="http_500"),
]


def config(path: object, *overrides: str) -> Config:
    return load_config(
        None, [f"data.output_path={path}", "data.system_prompt=Be brief.", *overrides]
    )


def finished(folder: Path, generations: list[Generation] = GENERATIONS) -> FinishedRun:
    out = OutputFolder(str(folder))
    out.write_jsonl(artifacts.GENERATIONS, generations)
    return FinishedRun(out, RunRecord(run="mine", samples=len(generations)), {})


def write(path: object, folder: Path, *inputs: str) -> str:
    return ResponsesFile(config(path), inputs).write(finished(folder), PROBLEMS)


Reward = Callable[[str, str, str], float]


def main_eval(frame: pd.DataFrame, reward: Reward) -> Mapping[str, float]:
    """What verl 0.9.1's main_eval computes, in its order and from the same columns."""
    rewards = defaultdict(list)
    for number in range(len(frame)):
        source, truth = frame["data_source"][number], frame["reward_model"][number]["ground_truth"]
        scores = [reward(source, answer, truth) for answer in frame["responses"][number]]
        rewards[source].append(fmean(scores))
    return {source: fmean(values) for source, values in rewards.items()}


def test_main_eval_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "responses.parquet"
    said = write(path, tmp_path / "run")
    assert said == (
        f"4 completions of 3 problems in {path}; 2 samples without a completion are left out"
    )
    asked: list[tuple[str, str]] = []

    def reward(source: str, response: str, truth: str) -> float:
        asked.append((response, truth))
        assert parse_ground_truth(truth).cases == 1
        return float(response == "right")

    assert main_eval(pd.read_parquet(path), reward) == {"d1": 0.25, "d2": 0.0}
    truths = [PROBLEMS[number].ground_truth for number in (0, 0, 1, 2)]
    assert asked == list(zip(("right", "wrong", ODD, ""), truths, strict=True))
    assert [entry.name for entry in path.parent.iterdir()] == ["responses.parquet"]


def test_rows_are_those_of_verls_generation(tmp_path: Path) -> None:
    path = tmp_path / "responses.parquet"
    write(path, tmp_path / "run")
    names = ["data_source", "prompt", "ability", "reward_model", "extra_info", "responses"]
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    assert [list(row) for row in rows] == [names] * 3
    assert rows[0]["prompt"] == chat_messages(PROBLEMS[0], config(path))
    assert [row["extra_info"]["split"] for row in rows] == ["valid", "test", "test"]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2]


ANSWERS = st.dictionaries(st.integers(0, 5), st.text().filter(is_encodable), max_size=4)


@settings(max_examples=30)
@given(answers=st.lists(ANSWERS, min_size=4, max_size=4).filter(any))
def test_any_answers_come_back_under_their_numbers(
    answers: list[dict[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    made = [
        generation(SampleId(problem.dataset, problem.problem_id, index), text)
        for problem, answer in zip(PROBLEMS, answers, strict=True)
        for index, text in sorted(answer.items())
    ]
    path = str(folder / "responses.parquet")
    ResponsesFile(config(path), []).write(finished(folder / "run", made), PROBLEMS)
    back = match_completions(path, PROBLEMS)
    assert {sample: back.completion(sample).completion for sample in back.hashes} == {
        problem.sample: problem.completion for problem in made
    }


def test_paths_that_are_refused_before_the_run_begins(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "eval.parquet").write_bytes(b"")
    for path, inputs, said in (
        (tmp_path / "answers.json", [], "ends in .parquet"),
        (data, [], "a folder; name the file to write"),
        (data / "eval.parquet", [str(data / "eval.parquet")], "the run reads"),
        (data / "new.parquet", [f"{data}/"], "the run reads"),
        ("nothing://bucket/new.parquet", [], "nothing"),
    ):
        with pytest.raises((ConfigError, OutputError)) as caught:
            ResponsesFile(config(path), inputs)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


class ReadOnly(MemoryFileSystem):
    """A bucket to which the key in use may not write."""

    protocol = "readonly"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        raise KeyError("AccessDenied: token=abcdefghijklmnop is for reading")


def test_a_path_that_cannot_be_written_is_found_before_the_run_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fsspec.register_implementation("readonly", ReadOnly, clobber=True)
    for folder, said in (
        (f"{tmp_path}/file/deeper", "Not a directory"),
        ("/proc/of", "No such file or directory"),
        ("readonly://bucket/deeper", "AccessDenied"),
    ):
        with pytest.raises(OutputError) as caught:
            ResponsesFile(config(f"{folder}/responses.parquet"), [])
        text = str(caught.value)
        assert text.startswith(f"data.output_path: cannot write into {folder}: ")
        assert said in text
        assert text.endswith("; make it writable, or give another path (null writes no file)")
        assert "abcdefghijklmnop" not in text
