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
defaults: [_self_]
data: {path: PATH, prompt_key: prompt, response_key: responses, data_source_key: data_source,
  reward_model_key: reward_model}
custom_reward_function: {path: null, name: compute_score}
ray_kwargs: {ray_init: {num_cpus: 8}, timeline_json_file: null}
"""


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """An answer to each of a few problems of two data sets."""
    recorded = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    first = {(answer["dataset"], answer["problem_id"]): answer for answer in recorded[::-1]}
    chosen: dict[tuple[str, str], dict[str, Any]] = {}  # one of each outcome but time-outs
    for answer in first.values():
        status = answer["expected_status"]
        if answer["dataset"] in ("codecontests_valid", "humaneval") and status != "timeout":
            chosen.setdefault((answer["dataset"], status), answer)
    return list(chosen.values())


@pytest.fixture(scope="module")
def five_columns(tmp_path_factory: pytest.TempPathFactory, answers: list[dict[str, Any]]) -> Path:
    folder = tmp_path_factory.mktemp("five") / "eval"
    folder.mkdir()
    for name in {answer["dataset"] for answer in answers}:
        frame = pd.read_parquet(plumb.DEMO / f"data/{name}.parquet")[COLUMNS]
        ids = {answer["problem_id"] for answer in answers}
        frame = frame[frame["problem_id"].isin(ids)].assign(difficulty=2)
        if name == "humaneval":  # the plan has the tests and the entry point alone
            tests = [json.loads(text) for text in frame["ground_truth"]]
            kept = [{key: test[key] for key in ("test", "entry_point")} for test in tests]
            frame["ground_truth"] = [json.dumps(test) for test in kept]
        frame.to_parquet(folder / f"{name}.parquet")
    return folder


def statuses(output: Path) -> dict[tuple[str, str], str]:
    verdicts = plumb.read_jsonl(output / "verdicts.jsonl")
    return {
        (verdict["dataset"], verdict["problem_id"]): verdict["final_status"] for verdict in verdicts
    }


def test_five_columns_are_run(
    five_columns: Path, answers: list[dict[str, Any]], tmp_path: Path, shared_sandbox: str
) -> None:
    recorded = ["generation.backend=replay", f"generation.replay.completions={plumb.DEMO}"]
    recorded[1] += "/completions.jsonl"
    recorded += ["judge.canaries=false"]
    arguments = ("--data", str(five_columns), "--output", str(tmp_path / "run"), "--embedded")
    done = plumb.plumb(plumb.command("run", *arguments, *recorded), sandbox=shared_sandbox)
    assert done.returncode in (0, 1), done.stderr
    judged = statuses(tmp_path / "run")
    expected = {
        (answer["dataset"], answer["problem_id"]): answer["expected_status"] for answer in answers
    }
    assert judged == expected


def judged_table(
    frame: pd.DataFrame, folder: Path, sandbox: str, *options: str
) -> tuple[Path, str]:
    """Output folder and standard output of a judged table; the configuration is main_eval's."""
    frame.to_parquet(folder / "responses.parquet")
    config = folder / "evaluation.yaml"
    config.write_text(EVALUATION.replace("PATH", str(folder / "responses.parquet")))
    arguments = ("--config", str(config), "--output_dir", str(folder / "judged"), "--embedded")
    done = plumb.plumb(plumb.command("judge", *arguments, *options), sandbox=sandbox)
    assert done.returncode == 0, done.stderr
    return folder / "judged", done.stdout


def test_verls_table_with_its_own_tests_is_judged_without_data(
    five_columns: Path, answers: list[dict[str, Any]], tmp_path: Path, shared_sandbox: str
) -> None:
    responses = {answer["problem_id"]: answer["completion"] for answer in answers}
    frame = pd.read_parquet(five_columns / "humaneval.parquet")
    rows = [
        {
            "prompt": [{"role": "user", "content": row.prompt}],
            "data_source": "humaneval",
            "reward_model": {"style": "rule", "ground_truth": row.ground_truth},
            "extra_info": {"index": number},
            "responses": [responses[row.problem_id], "no code"],
        }
        for number, row in enumerate(frame.itertuples())
    ]
    output, _ = judged_table(pd.DataFrame(rows), tmp_path, shared_sandbox)
    verdicts = plumb.read_jsonl(output / "verdicts.jsonl")
    expected = {answer["problem_id"]: answer["expected_status"] for answer in answers}
    by_row = dict(enumerate(frame["problem_id"], start=1))
    first = {verdict["problem_id"]: verdict for verdict in verdicts if verdict["sample_index"] == 0}
    assert {by_row[int(row)]: verdict["final_status"] for row, verdict in first.items()} == {
        problem: expected[problem] for problem in frame["problem_id"]
    }
    assert {verdict["final_status"] for verdict in verdicts if verdict["sample_index"] == 1} == {
        "syntax_error"
    }


def test_verls_table_of_exported_data_is_judged_as_the_same_answers_are(
    five_columns: Path, answers: list[dict[str, Any]], tmp_path: Path, shared_sandbox: str
) -> None:
    data = str(five_columns / "humaneval.parquet")
    export = ("data", "export", "--validation", data, "--output", str(tmp_path), "data.lock=null")
    done = plumb.plumb(plumb.command(*export))
    assert done.returncode == 0, done.stderr
    recorded = {
        answer["problem_id"]: answer for answer in answers if answer["dataset"] == "humaneval"
    }
    # As main_generation_server does: pandas adds a column with a list of n answers, here two.
    frame = pd.read_parquet(tmp_path / "validation.parquet")
    completions = [recorded[extra["problem_id"]]["completion"] for extra in frame["extra_info"]]
    frame["responses"] = [[completion, "no code"] for completion in completions]
    output, printed = judged_table(frame, tmp_path, shared_sandbox, "--data", data)
    assert "data.path is read as data.completions" in printed
    assert "ray_kwargs.ray_init: no effect here" in printed
    verdicts = plumb.read_jsonl(output / "verdicts.jsonl")
    expected = {(name, 0): answer["expected_status"] for name, answer in recorded.items()}
    expected |= {(name, 1): "syntax_error" for name in recorded}
    assert {
        (verdict["problem_id"], verdict["sample_index"]): verdict["final_status"]
        for verdict in verdicts
    } == expected
    record = json.loads((output / "run.json").read_text())
    assert record["config"]["data"]["completions"] == str(tmp_path / "responses.parquet")
    assert record["config"]["run"]["verl_keys"]["ray_kwargs.ray_init.num_cpus"] == 8


def test_five_columns_are_rewarded(five_columns: Path, answers: list[dict[str, Any]]) -> None:
    with reward_service(five_columns, "judge.canaries=false", allow_eval=True) as service:
        items = [
            {key: answer[key] for key in ("dataset", "problem_id", "completion")}
            for answer in answers
        ]
        verdicts = score(items, url=service.url)
    expected = [answer["expected_status"] for answer in answers]
    assert [verdict.status for verdict in verdicts] == expected
