"""Real verl's agent loop on the CPU: an engine, the code interpreter, and rewards."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from plumbline_reward import score

from tests.training.conftest import name_of, write_lines
from tests.training.environment import run_program
from tools.tiny_model import DemoProblem

pytestmark = [pytest.mark.nightly, pytest.mark.verl, pytest.mark.timeout(2000)]

_PROBLEMS = 4
_CALL = {"name": "code_interpreter", "arguments": {"code": "print(6 * 7)"}}
_PRINTED = "42"


@pytest.fixture(scope="module")
def rows(exported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    functions = [row for row in exported if row["data_source"] == "mbpp_reg"]
    return [{**row, "agent_name": "tool_agent"} for row in functions[:_PROBLEMS]]


def lessons(row: dict[str, Any], problem: DemoProblem) -> list[dict[str, Any]]:
    """Call the tool first, and give the solution when it has answered."""
    call = f"<tool_call>{json.dumps(_CALL)}</tool_call>"
    messages = [{"role": "assistant", "content": call}, {"role": "tool", "content": _PRINTED}]
    solution = f"```python\n{problem.reference_solution}```"
    return [
        {"messages": row["prompt"], "completion": call},
        {"messages": [*row["prompt"], *messages], "completion": solution},
    ]


def test_rollouts_call_the_tool_and_each_is_rewarded(
    verl_python: Path,
    tiny_model: Path,
    reward_url: str,
    rows: list[dict[str, Any]],
    problems: dict[str, DemoProblem],
    ray: Path,
    tmp_path: Path,
) -> None:
    taught = [lesson for row in rows for lesson in lessons(row, problems[name_of(row)])]
    examples = write_lines(tmp_path / "examples.jsonl", taught)
    model, data, out = tmp_path / "model", tmp_path / "rows.parquet", tmp_path / "out.json"
    run_program(verl_python, "taught_model", tiny_model, examples, model, 60, 0.9, url=reward_url)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)

    run_program(verl_python, "verl_rollouts", model, data, ray, out, url=reward_url)

    rollouts = json.loads(out.read_text())
    trajectories = rollouts["rows"]
    assert len(trajectories) == 2 * len(rows)
    assert {"acc", "judged", "cases_total"} <= set(rollouts["keys"])
    called = [each for each in trajectories if each["turns"] > 2]
    # user, assistant with the call, tool, assistant with the answer
    assert len(called) >= len(trajectories) / 2
    assert all(f"tool\n{_PRINTED}" in each["response"] for each in called), called
    # What verl was told is what the service says of these texts.
    verdicts = score(
        [{"completion": each["text"], "ground_truth": each["reference"]} for each in trajectories],
        url=reward_url,
    )
    assert [each["score"] for each in trajectories] == pytest.approx(
        [verdict.score for verdict in verdicts]
    )
    assert any(each["score"] == 1.0 for each in called)
