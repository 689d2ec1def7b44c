"""Resume with other commands, and of a run whose ledger is gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SMALL = ("data.limit=2", "data.lock=null", "judge.canaries=false")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(plumb.DEMO / "data", tmp_path_factory.mktemp("data") / "here"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Path, shared_sandbox: str) -> Path:
    output = tmp_path_factory.mktemp("runs") / "out"
    command = plumb.demo_run(output, *SMALL, f"data.eval_files=[{data}]")
    done = plumb.plumb(command, sandbox=shared_sandbox)
    assert done.returncode == 0, done.stderr
    return output


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text("utf-8")))


def test_engine_settings_and_data_path_may_change(run: Path, data: Path) -> None:
    before = record(run)
    moved = shutil.copytree(data, data.parent / "elsewhere")
    engine = [f"actor_rollout_ref.rollout.{each}" for each in _ENGINE]
    done = plumb.plumb(plumb.demo_run(run, *SMALL, f"data.eval_files=[{moved}]", *engine))
    assert done.returncode == 0, done.stderr
    after = record(run)
    assert (after["run"], after["fingerprint"]) == (before["run"], before["fingerprint"])
    assert (after["sessions"], after["generation_requests"]) == (before["sessions"] + 1, 8)
    assert after["config"]["actor_rollout_ref"]["rollout"]["max_num_seqs"] == 8


_ENGINE = ("gpu_memory_utilization=0.5", "max_num_seqs=8", "tensor_model_parallel_size=2")


@pytest.mark.parametrize(
    ("override", "leaf"),
    [
        ("actor_rollout_ref.rollout.temperature=0.5", "actor_rollout_ref.rollout.temperature"),
        ("data.templates.humaneval='Write {prompt}'", "data.templates.humaneval"),
        ("judge.checker=exact", "judge.checker"),
        ("data.limit=3", "data.limit"),
    ],
)
def test_another_protocol_is_refused_and_named(
    run: Path, data: Path, override: str, leaf: str
) -> None:
    before = record(run), plumb.numbers(run)
    done = plumb.plumb(plumb.demo_run(run, *SMALL, f"data.eval_files=[{data}]", override))
    assert done.returncode == 2
    assert f"holds the results of another run: {leaf} (" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "--force" in done.stderr
    assert (record(run), plumb.numbers(run)) == before


def test_other_content_of_the_data_is_refused(run: Path, data: Path) -> None:
    other = Path(shutil.copytree(data, data.parent / "changed"))
    file = other / "humaneval.parquet"
    table = pq.read_table(file)
    prompts = pa.array([f"{text} " for text in table["prompt"].to_pylist()])
    place = table.column_names.index("prompt")
    pq.write_table(table.set_column(place, "prompt", prompts), file)
    done = plumb.plumb(plumb.demo_run(run, *SMALL, f"data.eval_files=[{other}]"))
    assert done.returncode == 2
    assert "content of the data set humaneval (SHA-256 " in done.stderr
    assert "codecontests" not in done.stderr


def test_a_ledger_that_is_gone_is_no_start_from_nothing(run: Path, data: Path) -> None:
    shutil.rmtree(run / ".plumbline" / "redis")
    emptied = plumb.plumb(plumb.demo_run(run, *SMALL, f"data.eval_files=[{data}]"))
    assert emptied.returncode == 2
    assert f"{run} is the folder of run" in emptied.stderr
    assert "which Redis does not know" in emptied.stderr
