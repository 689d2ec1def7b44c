"""Real verl reads what `plumb data export` writes."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.data import app
from shared.config import load_config
from shared.datasets import read_dataset
from shared.prompts import chat_messages
from shared.reference import reference_of
from tests.cli.commands import ROOT

pytestmark = [pytest.mark.verl, pytest.mark.timeout(300)]


def test_rlhf_dataset(verl_python: Path, tiny_model: Path, tmp_path: Path) -> None:
    demo = ROOT / "demo/data"
    config = str(ROOT / "configs/demo.yaml")
    train, validation = demo / "codecontests_valid.parquet", demo / "humaneval.parquet"
    files = ("--train", str(train), "--allow-eval", "--validation", str(validation))
    choices = ("--agent-name", "tool_agent", "data.lock=null")
    done = CliRunner().invoke(
        app, ["export", "--config", config, "--output", str(tmp_path), *files, *choices]
    )
    assert done.exit_code == 0, done.exception
    script = Path(__file__).with_name("verl_reads.py")
    paths = [tmp_path / "train.parquet", tmp_path / "validation.parquet"]
    read = subprocess.run(
        [verl_python, script, tiny_model, *paths],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    seen = json.loads(read.stdout.splitlines()[-1])
    problem = read_dataset(str(train))[0]
    assert seen["rows"] == 29
    assert seen["raw_prompt"] == chat_messages(problem, load_config(config))
    assert seen["data_source"] == "codecontests_valid"
    reference = reference_of(problem).text
    assert seen["reward_model"] == {"style": "rule", "ground_truth": reference}
    assert seen["extra_info"]["problem_id"] == problem.problem_id
    assert seen["tools_kwargs"] == {"run_public_tests": {"create_kwargs": {"public_tests": []}}}
    assert (seen["agent_name"], seen["index"]) == ("tool_agent", 14)
