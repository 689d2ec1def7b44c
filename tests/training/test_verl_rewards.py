"""Real verl's reward managers and `main_eval` on the CPU, with verdicts of the service."""

import ast
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from services.training.verl_tables import ResponsesFile
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.datasets import read_datasets
from shared.finished_run import FinishedRun
from shared.run_record import RunRecord
from shared.schemas import SampleId
from tests.e2e.plumb import DEMO
from tests.shared.ledgers import generation
from tests.training.conftest import name_of
from tests.training.environment import run_module, run_program
from tools.tiny_model import DemoProblem

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1200)]

_KEYS = {"score", "acc", "accepted", "pass_ratio", "judged", "cases_passed", "cases_total"}


@pytest.fixture(scope="module")
def responses(
    exported: list[dict[str, Any]],
    problems: dict[str, DemoProblem],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The exported rows with each problem's recorded answer, as verl writes responses."""
    rows = [{**row, "responses": [problems[name_of(row)].completion]} for row in exported]
    path = tmp_path_factory.mktemp("responses") / "responses.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_reward_managers_give_the_verdicts_of_the_service(
    verl_python: Path,
    tiny_model: Path,
    reward_url: str,
    responses: Path,
    exported: list[dict[str, Any]],
    problems: dict[str, DemoProblem],
    ray: Path,
    tmp_path: Path,
) -> None:
    arguments = (tiny_model, responses, ray, tmp_path / "found.json")
    run_program(verl_python, "verl_rewards", *arguments, url=reward_url)
    rewards = json.loads((tmp_path / "found.json").read_text())

    right = [problems[name_of(row)].right for row in exported]
    assert set(rewards["keys"]) >= _KEYS
    assert [acc == 1.0 for acc in rewards["acc"]] == right
    assert [score == 1.0 for score in rewards["scores"]] == right
    assert any(0 < score < 1 for score in rewards["scores"])
    for reward, together in zip(
        rewards["alone"], rewards["scores"][: len(rewards["alone"])], strict=True
    ):
        assert reward["reward_score"] == pytest.approx(together)
    # The service's own words get through verl.
    assert "409" in rewards["refused"] or "export" in rewards["refused"], rewards["refused"]


def test_main_eval_reads_the_table_of_a_run(
    verl_python: Path,
    reward_url: str,
    problems: dict[str, DemoProblem],
    ray: Path,
    tmp_path: Path,
) -> None:
    """``data.output_path``: two answers per problem, right or not, and tests inline."""
    of_data = read_datasets([str(DEMO / "data")])
    answers = [
        (problem, problems[f"{problem.dataset}/{problem.problem_id}"]) for problem in of_data
    ]
    folder = OutputFolder(str(tmp_path / "run"))
    generations = [
        generation(SampleId(problem.dataset, problem.problem_id, index), text)
        for problem, recorded in answers
        for index, text in enumerate((recorded.completion, "no code"))
    ]
    folder.write_jsonl(artifacts.GENERATIONS, generations)
    run = FinishedRun(folder, RunRecord(run="demo", samples=len(generations)), {})
    table = tmp_path / "responses.parquet"
    ResponsesFile(load_config(None, [f"data.output_path={table}"]), []).write(run, of_data)

    expected: dict[str, list[float]] = defaultdict(list)
    for problem, recorded in answers:
        expected[problem.dataset].append(recorded.right / 2)
    shares = {f"test_score/{source}": fmean(right) for source, right in expected.items()}
    assert main_eval(verl_python, table, reward_url, ray) == pytest.approx(shares)


def main_eval(verl_python: Path, table: Path, reward_url: str, ray: Path) -> dict[str, float]:
    """The means that verl's program prints, with `accepted` as the score."""
    done = run_module(
        verl_python,
        "verl.trainer.main_eval",
        f"data.path={table}",
        "+reward.custom_reward_function.path=pkg://plumbline_reward",
        "+reward.custom_reward_function.name=compute_score_sync",
        "+reward.custom_reward_function.reward_kwargs.score=accepted",
        "ray_kwargs.ray_init.num_cpus=2",
        "+ray_kwargs.ray_init.include_dashboard=false",
        f"+ray_kwargs.ray_init._temp_dir={ray}",
        f"hydra.run.dir={ray}",
        url=reward_url,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return _printed(done.stdout)


def _printed(text: str) -> dict[str, float]:
    (line,) = (line for line in text.splitlines() if line.startswith("{'test_score/"))
    values: dict[str, float] = ast.literal_eval(re.sub(r"np\.float64\(([^)]*)\)", r"\1", line))
    return values
