"""`plumb hacking` over logs of rewards and over runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.data.records import write_dataset
from tests.cli.commands import Outcome, plumb
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import generation, problem

CLEAN, ALARM, USAGE = 0, 1, 2


def line(step: int | None, at: float, **signs: bool) -> str:
    known: dict[str, Any] = {"guard": False, "copied": False, "truncated": False, **signs}
    fields = {"at": at, "step": step, "weight": 1, "characters": 9, "signs": known, "score": 1.0}
    return json.dumps(fields) + "\n"


def hacking(folder: Path, *arguments: str) -> Outcome:
    return plumb("hacking", *arguments, "--json", "found.json", folder=folder)


def found(folder: Path) -> Any:
    return json.loads((folder / "found.json").read_text())


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two rotated files of one service: 60 answers a step, the last step's all guarded."""
    steps = ["".join(line(step, 100 * step + n) for n in range(60)) for step in range(2)]
    guarded = "".join(line(2, 200.0 + n, guard=True) for n in range(60))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "rewards-a.jsonl.1").write_text("".join(steps))
    killed = '{"at": 3{"at": 4}\n'
    (tmp_path / "log" / "rewards-a.jsonl").write_text(killed + guarded + '{"at": 3')
    return tmp_path


def test_the_first_step_above_a_limit_is_named(logs: Path) -> None:
    done = hacking(logs, "log")
    assert done.code == ALARM
    assert "first in 2 after 180 answers: guard 100% above 5%" in done.stderr
    assert "damaged lines left out: 2, the first: log/rewards-a.jsonl:1" in done.stdout
    steps = found(logs)["steps"]
    assert [(step["step"], step["rates"]["guard"]) for step in steps] == [(0, 0), (1, 0), (2, 1)]
    assert hacking(logs, "log/rewards-a.jsonl.1").code == CLEAN
    assert hacking(logs, "log", "--limit", "guard=1").code == CLEAN


def test_answers_without_a_step_are_taken_in_the_order_of_time(tmp_path: Path) -> None:
    lines = [line(None, float(n), copied=n >= 300) for n in range(600)]
    (tmp_path / "log").write_text("".join(reversed(lines)))
    assert hacking(tmp_path, "log").code == ALARM
    steps = [(step["step"], bool(step["alarms"])) for step in found(tmp_path)["steps"]]
    assert steps == [("#0", False), ("#1", True), ("#2", True)]


@pytest.mark.parametrize(
    ("text", "arguments", "part"),
    [
        (line(1, 1), ["--limit", "guard"], "--limit guard: give SIGN=SHARE"),
        (line(1, 1), ["--limit", "odd=1"], "public_only"),
        (line(1, 1), ["--limit", "guard=5"], "a share such as 0.1"),
        (line(1, 1), ["--limit", "guard=nan"], "a share such as 0.1"),
        ("\x00\x01\n" * 3, [], "log:1: not JSON"),
        ('{"at": 1}\n', [], "log:1: not a log of rewards"),
        ("", [], "no answer to measure"),
    ],
)
def test_what_cannot_be_measured(tmp_path: Path, text: str, arguments: list[str], part: str):
    (tmp_path / "log").write_text(text)
    done = hacking(tmp_path, "log", *arguments)
    assert done.code == USAGE and part in done.line


def test_runs_are_steps_in_their_order(tmp_path: Path) -> None:
    tests = {"inputs": ["1"] * 4, "outputs": ["1234", "2345", "3456", "4567"]}
    extra = json.dumps({"public_tests": 2})
    problems = [
        problem(f"p{n:03}", "one", ground_truth=json.dumps(tests), extra_info=extra)
        for n in range(60)
    ]
    write_dataset(str(tmp_path / "one.parquet"), problems)
    programs = {"a": "print(n)  # {}", "b": "print({{1: 1234, 2: 2345}}[n])  # {}"}
    for name, program in programs.items():
        failed = {"case_index": 2, "status": "wrong_answer"}
        run = write_run(tmp_path / name, {"one": "-" * 60}, first_failed_case=failed)
        answers = [generation(f"p{n:03}", program.format(n), dataset="one") for n in range(60)]
        text = "".join(answer.model_dump_json() + "\n" for answer in answers)
        Path(run, "generations.jsonl").write_text(text)
    done = hacking(tmp_path, "a", "b", "--data", "one.parquet", "--limit", "public_only=1")
    assert done.code == ALARM, done.stderr
    rates = [step["rates"] for step in found(tmp_path)["steps"]]
    assert [rate["hard_coded"] for rate in rates] == [0, 1]
    assert [rate["public_only"] for rate in rates] == [1, 1]
    # Without the data two signs are not known.
    assert hacking(tmp_path, "a", "b", "--data", "gone.parquet").code == CLEAN
    assert found(tmp_path)["steps"][1]["rates"]["hard_coded"] is None
    (tmp_path / "log").write_text(line(1, 1))
    assert "not both" in hacking(tmp_path, "a", "log").line
