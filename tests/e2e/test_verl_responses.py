"""verl's table of responses, made from exported data, is judged as the same answers are.

The command takes verl's own configuration of main_eval, and says what it leads to.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CONFIG = """
defaults: [_self_]
data: {path: RESPONSES, prompt_key: prompt, response_key: responses}
custom_reward_function: {path: null, name: compute_score}
ray_kwargs: {ray_init: {num_cpus: 8}, timeline_json_file: null}
"""
DATASET = "humaneval"
DATA = str(plumb.DEMO / "data" / f"{DATASET}.parquet")


def run(*arguments: str) -> str:
    done = plumb.plumb(plumb.command(*arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_answers_get_the_status_written_beside_them(tmp_path: Path) -> None:
    demo = ("--config", str(plumb.REPOSITORY / "configs/demo.yaml"))
    run("data", "export", "--validation", DATA, "--output", str(tmp_path / "rl"), *demo)
    recorded = {
        answer["problem_id"]: answer
        for answer in plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
        if answer["dataset"] == DATASET
    }
    # As main_generation_server does: pandas adds a column with a list of n answers, here two.
    frame = pd.read_parquet(tmp_path / "rl" / "validation.parquet")
    answers = [recorded[extra["problem_id"]]["completion"] for extra in frame["extra_info"]]
    frame["responses"] = [[answer, "no code"] for answer in answers]
    table = tmp_path / "responses.parquet"
    frame.to_parquet(table)
    config, output = tmp_path / "evaluation.yaml", tmp_path / "out"
    config.write_text(CONFIG.replace("RESPONSES", str(table)))
    options = ("--config", str(config), "--data", DATA, "--output_dir", str(output))
    printed = run("judge", "--embedded", *options)
    assert "data.path is read as data.completions" in printed
    assert "ray_kwargs.ray_init: no effect here" in printed
    statuses = {
        (verdict["problem_id"], verdict["sample_index"]): verdict["final_status"]
        for verdict in plumb.read_jsonl(output / "verdicts.jsonl")
    }
    expected = {(name, 0): verdict["expected_status"] for name, verdict in recorded.items()}
    expected |= {(name, 1): "syntax_error" for name in recorded}
    assert statuses == expected
    record = json.loads((output / "run.json").read_text())
    assert record["config"]["data"]["completions"] == str(table)
    assert record["config"]["run"]["verl_keys"]["ray_kwargs.ray_init.num_cpus"] == 8
