"""verl's configuration of main_eval judges a table of responses, and is told what it leads to."""

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


def test_a_configuration_of_main_eval(tmp_path: Path) -> None:
    recorded = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    first = next(one for one in recorded if one["dataset"] == "humaneval")
    table = tmp_path / "responses.parquet"
    named = {"dataset": "humaneval", "problem_id": first["problem_id"]}
    row = {"responses": [first["completion"]], "data_source": "humaneval", "extra_info": named}
    pd.DataFrame([row]).to_parquet(table)
    config = tmp_path / "evaluation.yaml"
    config.write_text(CONFIG.replace("RESPONSES", str(table)))
    data = str(plumb.DEMO / "data" / "humaneval.parquet")
    output = tmp_path / "out"
    given = ("--config", str(config), "--data", data, "--output_dir", str(output), "--embedded")
    done = plumb.plumb(plumb.command("judge", *given))
    assert done.returncode == 0, done.stderr
    assert "data.path is read as data.completions" in done.stdout
    assert "ray_kwargs.ray_init: no effect here" in done.stdout
    (verdict,) = plumb.read_jsonl(output / "verdicts.jsonl")
    assert verdict["final_status"] == first["expected_status"]
    run = json.loads((output / "run.json").read_text())
    assert run["config"]["data"]["completions"] == str(table)
    assert run["config"]["run"]["verl_keys"]["ray_kwargs.ray_init.num_cpus"] == 8
