"""Real TRL on the CPU: GRPO with rewards of the service makes the tiny model better."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from plumbline_reward import score

from tests.training.conftest import name_of, write_lines
from tests.training.environment import run_program
from tools.tiny_model import DemoProblem

pytestmark = [pytest.mark.nightly, pytest.mark.verl, pytest.mark.timeout(1200)]

_PROBLEMS = 8
_EPOCHS = 30
_STEPS = 12


@pytest.fixture(scope="module")
def chosen(
    exported: list[dict[str, Any]], problems: dict[str, DemoProblem]
) -> list[tuple[dict[str, Any], DemoProblem]]:
    """Rows with the shortest solutions, which a CPU generates fastest."""
    functions = [row for row in exported if row["data_source"] == "mbpp_reg"]
    pairs = [(row, problems[name_of(row)]) for row in functions]
    return sorted(pairs, key=lambda pair: len(pair[1].reference_solution))[:_PROBLEMS]


def answers(problem: DemoProblem) -> tuple[str, str]:
    """A right answer and a wrong one, which differ late."""
    head, _, value = problem.reference_solution.rpartition("return ")
    return f"```python\n{head}return {value}```", f"```python\n{head}return not {value}```"


def test_grpo_raises_the_mean_reward(
    verl_python: Path,
    tiny_model: Path,
    reward_url: str,
    chosen: list[tuple[dict[str, Any], DemoProblem]],
    tmp_path: Path,
) -> None:
    taught = [
        {"messages": problem.messages, "completion": completion}
        for _, problem in chosen
        for completion in answers(problem)
    ]
    truths = [row["reward_model"]["ground_truth"] for row, _ in chosen]
    rows = [
        {"prompt": row["prompt"], "ground_truth": truth}
        for (row, _), truth in zip(chosen, truths, strict=True)
    ]
    verdicts = score(
        [
            {"completion": completion, "ground_truth": truth}
            for (_, problem), truth in zip(chosen, truths, strict=True)
            for completion in answers(problem)
        ],
        url=reward_url,
    )
    assert [verdict.accepted for verdict in verdicts] == [True, False] * len(chosen)

    examples = write_lines(tmp_path / "examples.jsonl", taught)
    model = tmp_path / "model"
    run_program(
        verl_python, "taught_model", tiny_model, examples, model, _EPOCHS, 0.9, url=reward_url
    )
    data, out = write_lines(tmp_path / "rows.jsonl", rows), tmp_path / "rewards.json"
    run_program(verl_python, "trl_grpo", model, data, out, 0, _STEPS, url=reward_url)

    rewards = json.loads(out.read_text())
    assert len(rewards) == _STEPS
    assert fmean(rewards[-3:]) > fmean(rewards[:2]) + 0.1
