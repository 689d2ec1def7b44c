"""verl's table of responses, made from exported data, is judged as the same answers are."""

from pathlib import Path

import pandas as pd
import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DATASET = "humaneval"
DATA = str(plumb.DEMO / "data" / f"{DATASET}.parquet")


def run(*arguments: str) -> None:
    config = ("--config", str(plumb.REPOSITORY / "configs/demo.yaml"))
    done = plumb.plumb(plumb.command(*arguments, *config))
    assert done.returncode == 0, done.stderr


def test_answers_get_the_status_written_beside_them(tmp_path: Path) -> None:
    run("data", "export", "--validation", DATA, "--output", str(tmp_path / "rl"))
    recorded = {
        one["problem_id"]: one
        for one in plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
        if one["dataset"] == DATASET
    }
    # As main_generation_server does: pandas adds a column with a list of n answers, here two.
    frame = pd.read_parquet(tmp_path / "rl" / "validation.parquet")
    answers = [recorded[extra["problem_id"]]["completion"] for extra in frame["extra_info"]]
    frame["responses"] = [[answer, "no code"] for answer in answers]
    table = tmp_path / "responses.parquet"
    frame.to_parquet(table)
    output = tmp_path / "out"
    given = ("--data", DATA, "--completions", str(table), "--output", str(output))
    run("judge", "--embedded", *given)
    found = {
        (one["problem_id"], one["sample_index"]): one["final_status"]
        for one in plumb.read_jsonl(output / "verdicts.jsonl")
    }
    expected = {(name, 0): one["expected_status"] for name, one in recorded.items()}
    expected |= {(name, 1): "syntax_error" for name in recorded}
    assert found == expected
