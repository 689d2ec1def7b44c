"""Tables that verl wrote: its column ``responses`` finds the problems."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from services.runner.sources import match_completions
from shared.config import load_config
from shared.datasets import read_dataset
from shared.errors import DataError
from shared.reference import reference_of
from shared.schemas import Problem, SampleId
from tests.shared.ledgers import problem

PROBLEMS = [problem("p1"), problem("p/2 ä"), problem("p1", dataset="d2")]


def row(one: Problem, responses: object, **columns: object) -> dict[str, object]:
    truth = {"style": "rule", "ground_truth": reference_of(one).text}
    return {
        "data_source": one.dataset,
        "reward_model": truth,
        "extra_info": {"index": 0},
        "responses": responses,
        **columns,
    }


def table(folder: Path, *rows: dict[str, Any]) -> str:
    """Written as main_generation_server writes it."""
    path = folder / "responses.parquet"
    pd.DataFrame(list(rows)).to_parquet(path)
    return str(path)


def matched(path: str) -> dict[SampleId, str]:
    found = match_completions(path, PROBLEMS)
    return {sample: found.completion(sample).completion for sample in found.hashes}


def refusal(path: str) -> str:
    with pytest.raises(DataError) as caught:
        match_completions(path, PROBLEMS)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_list_per_row_is_numbered(tmp_path: Path) -> None:
    path = table(
        tmp_path, row(PROBLEMS[1], ["a", "b"]), row(PROBLEMS[0], ["c", None]), row(PROBLEMS[2], [])
    )
    assert matched(path) == {
        SampleId("d1", "p/2 ä", 0): "a",
        SampleId("d1", "p/2 ä", 1): "b",
        SampleId("d1", "p1", 0): "c",
        SampleId("d1", "p1", 1): "",
    }


def test_a_text_per_row_and_a_problem_in_several_rows(tmp_path: Path) -> None:
    path = table(tmp_path, row(PROBLEMS[0], "a"), row(PROBLEMS[2], "b"), row(PROBLEMS[0], ""))
    assert matched(path) == {
        SampleId("d1", "p1", 0): "a",
        SampleId("d2", "p1", 0): "b",
        SampleId("d1", "p1", 1): "",
    }


@pytest.mark.parametrize("answer", ["a", ["a"]])
def test_a_row_without_a_value_is_no_answer(tmp_path: Path, answer: object) -> None:
    path = table(tmp_path, row(PROBLEMS[0], None), row(PROBLEMS[2], answer))
    assert matched(path) == {SampleId("d2", "p1", 0): "a"}


def test_inline_tests_are_named_by_the_extra_info(tmp_path: Path) -> None:
    inline = {"style": "rule", "ground_truth": PROBLEMS[0].ground_truth}
    reference = {"reference": reference_of(PROBLEMS[2]).text}
    path = table(tmp_path, row(PROBLEMS[2], ["a"], reward_model=inline, extra_info=reference))
    assert matched(path) == {SampleId("d2", "p1"): "a"}
    extra = {"problem_id": "p1"}
    path = table(tmp_path, row(PROBLEMS[2], ["b"], reward_model=inline, extra_info=extra))
    assert matched(path) == {SampleId("d2", "p1"): "b"}


def test_an_unknown_problem_is_counted(tmp_path: Path) -> None:
    path = table(tmp_path, row(PROBLEMS[0], ["a"]), row(problem("other"), ["b", "c"]))
    found = match_completions(path, PROBLEMS)
    assert set(found.hashes) == {SampleId("d1", "p1")}
    assert found.unknown == ["other", "other"]


def test_a_problem_that_has_changed_since(tmp_path: Path) -> None:
    before = PROBLEMS[0].model_copy(update={"prompt_sha256": "0" * 64})
    path = table(tmp_path, row(PROBLEMS[2], ["a"]), row(before, ["b"]))
    assert "row 2: d1/p1 has changed since these responses were made" in refusal(path)


def test_what_is_no_table_of_responses(tmp_path: Path) -> None:
    assert "no such file" in refusal(str(tmp_path / "absent.parquet"))
    (tmp_path / "text.parquet").write_text("text")
    assert "not a parquet file" in refusal(str(tmp_path / "text.parquet"))
    unanswered = row(PROBLEMS[0], "")
    del unanswered["responses"]
    assert "column 'responses' is missing" in refusal(table(tmp_path, unanswered))
    assert "neither a text nor a list" in refusal(table(tmp_path, row(PROBLEMS[0], [1, 2])))
    assert "neither a text nor a list" in refusal(table(tmp_path, row(PROBLEMS[0], 1)))
    inline = row(PROBLEMS[0], "a", reward_model={"style": "rule", "ground_truth": "42"})
    assert "row 1: names no problem" in refusal(table(tmp_path, inline))
    torn = row(PROBLEMS[0], "a", reward_model={"style": "rule", "ground_truth": "plumbline:x"})
    assert "row 1: not a reference to a problem" in refusal(table(tmp_path, torn))


def test_numbers_that_are_written_beside_the_responses(tmp_path: Path) -> None:
    extra = {"sample_indices": [3, 1]}
    path = table(tmp_path, row(PROBLEMS[0], ["a", "b"], extra_info=extra))
    assert matched(path) == {SampleId("d1", "p1", 3): "a", SampleId("d1", "p1", 1): "b"}
    path = table(tmp_path, row(PROBLEMS[0], ["a", "b", "c"], extra_info=extra))
    assert [sample.sample_index for sample in matched(path)] == [0, 1, 2]
    twice = {"sample_indices": [1, 1]}
    path = table(tmp_path, row(PROBLEMS[0], ["a", "b"], extra_info=twice))
    assert "two completions for d1/p1/1" in refusal(path)


def test_problems_named_by_columns_of_their_own(tmp_path: Path) -> None:
    """As in a file of prepared data that somebody else's program gave responses."""
    rows: list[dict[str, Any]] = [
        {"dataset": "d2", "problem_id": "p1", "responses": "a"},
        {"dataset": None, "problem_id": "p/2 ä", "responses": "b"},
    ]
    assert matched(table(tmp_path, *rows)) == {
        SampleId("d2", "p1"): "a",
        SampleId("d1", "p/2 ä"): "b",
    }
    # verl's sources are names of its scorers, which need not be data sets.
    for column in ("task_id", "problem_id"):
        only = {"data_source": "codecontests", column: "p/2 ä", "responses": ["c"]}
        assert matched(table(tmp_path, only)) == {SampleId("d1", "p/2 ä"): "c"}


def test_records_as_json(tmp_path: Path) -> None:
    truth = json.dumps({"style": "rule", "ground_truth": reference_of(PROBLEMS[2]).text})
    rows = [
        {"reward_model": truth, "responses": ["a"], "extra_info": "{"},
        {
            "reward_model": "{",
            "responses": ["b"],
            "extra_info": json.dumps({"problem_id": "p/2 ä"}),
        },
    ]
    assert matched(table(tmp_path, *rows)) == {
        SampleId("d2", "p1"): "a",
        SampleId("d1", "p/2 ä"): "b",
    }


@pytest.mark.parametrize("as_messages", [True, False])
def test_problems_found_by_their_prompt(tmp_path: Path, as_messages: bool) -> None:
    config = load_config(None, ["data.system_prompt=Be brief.", "data.templates.d1='Do: {prompt}'"])
    known = [problem("p1"), problem("p2"), problem("p3", "d2")]

    def prompt(text: str) -> object:
        first = {"role": "system", "content": "Be brief."}
        return [first, {"role": "user", "content": text}] if as_messages else text

    texts = ("Do: Solve p2.", "Solve p3.  ", "Solve p1.")
    rows = [{"prompt": prompt(text), "responses": [text]} for text in texts]
    path = table(tmp_path, *rows)
    found = match_completions(path, known, config)
    assert [sample.problem_id for sample in found.hashes] == ["p2", "p3", "p1"]
    # Without the config the template is not known.
    with pytest.raises(DataError, match="row 1: names no problem"):
        match_completions(path, known)
    doubled = [*known, problem("p1", "d3")]
    with pytest.raises(DataError, match=r"row 3: .* its prompt is that of d1/p1 and d3/p1"):
        match_completions(path, doubled, config)


def test_rows_of_a_table_with_tests_are_problems_of_their_own(tmp_path: Path) -> None:
    tests = json.dumps({"inputs": ["1"], "outputs": ["1"]})
    same = {"data_source": "d1", "prompt": "Echo.", "reward_model": {"ground_truth": tests}}
    path = table(tmp_path, *({**same, "responses": [text]} for text in ("a", "b")))
    problems = read_dataset(path)
    found = match_completions(path, problems)
    texts = {(s.problem_id, found.completion(s).completion) for s in found.hashes}
    assert texts == {("1", "a"), ("2", "b")}
