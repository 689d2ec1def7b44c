"""Data as the plan writes them, through run, judge and reward."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from plumbline_reward import score

from tests.e2e import plumb
from tests.e2e.reward import reward_service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

COLUMNS = ["prompt", "data_source", "ground_truth", "problem_id", "difficulty"]
EVALUATION = """
data: {path: PATH, prompt_key: prompt, response_key: responses, data_source_key: data_source,
  reward_model_key: reward_model}
custom_reward_function: {path: null, name: compute_score}
ray_init: {num_cpus: null, timeline_json_file: null}
"""


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """An answer to each of a few problems of two data sets."""
    recorded = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    first = {(one["dataset"], one["problem_id"]): one for one in recorded[::-1]}
    chosen: dict[tuple[str, str], dict[str, Any]] = {}  # one of each outcome but time-outs
    for one in first.values():
        status = one["expected_status"]
        if one["dataset"] in ("codecontests_valid", "humaneval") and status != "timeout":
            chosen.setdefault((one["dataset"], status), one)
    return list(chosen.values())


@pytest.fixture(scope="module")
def five_columns(tmp_path_factory: pytest.TempPathFactory, answers: list[dict[str, Any]]) -> Path:
    folder = tmp_path_factory.mktemp("five") / "eval"
    folder.mkdir()
    for name in {one["dataset"] for one in answers}:
        frame = pd.read_parquet(plumb.DEMO / f"data/{name}.parquet")[COLUMNS]
        ids = {one["problem_id"] for one in answers}
        frame = frame[frame["problem_id"].isin(ids)].assign(difficulty=2)
        if name == "humaneval":  # the plan has the tests and the entry point alone
            tests = [json.loads(text) for text in frame["ground_truth"]]
            kept = [{key: one[key] for key in ("test", "entry_point")} for one in tests]
            frame["ground_truth"] = [json.dumps(one) for one in kept]
        frame.to_parquet(folder / f"{name}.parquet")
    return folder


def statuses(output: Path) -> dict[tuple[str, str], str]:
    found = plumb.read_jsonl(output / "verdicts.jsonl")
    return {(one["dataset"], one["problem_id"]): one["final_status"] for one in found}


def test_five_columns_are_run(
    five_columns: Path, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    recorded = ["generation.backend=replay", f"generation.replay.completions={plumb.DEMO}"]
    recorded[1] += "/completions.jsonl"
    given = ("--data", str(five_columns), "--output", str(tmp_path / "run"), "--embedded")
    done = plumb.plumb(plumb.command("run", *given, *recorded))
    assert done.returncode in (0, 1), done.stderr
    found = statuses(tmp_path / "run")
    expected = {(one["dataset"], one["problem_id"]): one["expected_status"] for one in answers}
    assert found == expected


def test_verls_table_with_its_own_tests_is_judged_without_data(
    five_columns: Path, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    responses = {one["problem_id"]: one["completion"] for one in answers}
    frame = pd.read_parquet(five_columns / "humaneval.parquet")
    rows = [
        {
            "prompt": [{"role": "user", "content": one.prompt}],
            "data_source": "humaneval",
            "reward_model": {"style": "rule", "ground_truth": one.ground_truth},
            "extra_info": {"index": number},
            "responses": [responses[one.problem_id], "no code"],
        }
        for number, one in enumerate(frame.itertuples())
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "out.parquet")
    config = tmp_path / "evaluation.yaml"
    config.write_text(EVALUATION.replace("PATH", str(tmp_path / "out.parquet")))
    given = ("--config", str(config), "--output", str(tmp_path / "judged"), "--embedded")
    done = plumb.plumb(plumb.command("judge", *given))
    assert done.returncode == 0, done.stderr
    found = plumb.read_jsonl(tmp_path / "judged" / "verdicts.jsonl")
    expected = {one["problem_id"]: one["expected_status"] for one in answers}
    by_row = dict(enumerate(frame["problem_id"], start=1))
    first = {one["problem_id"]: one for one in found if one["sample_index"] == 0}
    assert {by_row[int(row)]: one["final_status"] for row, one in first.items()} == {
        one: expected[one] for one in frame["problem_id"]
    }
    assert {one["final_status"] for one in found if one["sample_index"] == 1} == {"syntax_error"}


def test_five_columns_are_rewarded(five_columns: Path, answers: list[dict[str, Any]]) -> None:
    with reward_service(five_columns, allow_eval=True) as service:
        items = [
            {key: one[key] for key in ("dataset", "problem_id", "completion")} for one in answers
        ]
        verdicts = score(items, url=service.url)
    expected = [one["expected_status"] for one in answers]
    assert [one.status for one in verdicts] == expected
