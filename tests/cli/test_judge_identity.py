"""Runs that were judged otherwise are named wherever they meet, with the remedy, each once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.reward.service import RewardSession
from shared.canaries import REJUDGE
from shared.config import RULES, Config, JudgeConfig
from tests.cli.commands import Outcome, plumb
from tests.shared.baselines import sandbox
from tests.shared.finished_runs import write_run

PROGRAMS = {
    "kind": "plumbline",
    "python": "3.11.7",
    "packages": {"numpy": "2.4.6", "sympy": "1.14.0"},
    "cpu": "EPYC",
}


def judged_on(**changes: Any) -> dict[str, Any]:
    """The canaries of a run whose sandbox has another environment."""
    return {"canaries": {"sandboxes": [sandbox(environments=[PROGRAMS | changes])], "lost": 0}}


def compare(folder: Path) -> Outcome:
    return plumb("compare", "a", "b", folder=folder)


def gate(folder: Path) -> Outcome:
    (folder / "policy.yaml").write_text("default: {max_new_failures: 5}\n")
    return plumb("gate", "a", "b", "--policy", "policy.yaml", folder=folder)


OTHERWISE = [
    ({"config.judge.rules": RULES + 1}, f"judge.rules is {RULES} in A and {RULES + 1} in B"),
    (judged_on(python="3.12.1"), "the programs' Python is 3.11.7 in A and 3.12.1 in B"),
    (
        judged_on(packages={"numpy": "2.4.6"}),
        "what programs can import is sympy 1.14.0 in A and no sympy in B",
    ),
    (judged_on(kind="Fusion"), "the kind of the sandbox is plumbline in A and Fusion in B"),
]


@pytest.mark.parametrize("command", [compare, gate])
def test_runs_that_were_judged_otherwise_are_not_compared(
    tmp_path: Path, command: Callable[[Path], Outcome]
) -> None:
    write_run(tmp_path / "a", {"one": "+-"}, change=judged_on())
    for number, (change, said) in enumerate(OTHERWISE):
        folder = tmp_path / str(number)
        (folder / "b").parent.mkdir()
        (folder / "a").symlink_to(tmp_path / "a")
        write_run(folder / "b", {"one": "+-"}, change={**judged_on(), **change})
        done = command(folder)
        output = " ".join((done.stdout + done.stderr).split())
        refused = 4 if command is gate else 2
        found = done.code, output.count(said), output.count(REJUDGE)
        assert found == (refused, 1, 1), (change, output)


def test_a_patch_level_and_a_processor_are_no_other_measurement(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {"one": "+-"}, change=judged_on())
    changed = judged_on(python="3.11.9", cpu="Xeon")
    write_run(tmp_path / "b", {"one": "+-"}, change=changed)
    done = compare(tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "the sandbox's processor is EPYC in A and Xeon in B" in done.stdout
    assert "rejudge" not in done.stdout


def test_acceptance_names_rules_that_are_not_the_present_ones(tmp_path: Path) -> None:
    other = {**judged_on(), "config.judge.rules": RULES + 1}
    write_run(tmp_path / "a", {"one": "+-"}, change=other)
    done = plumb("accept", "a", "--json", "found.json", folder=tmp_path)
    document = json.loads((tmp_path / "found.json").read_text())["findings"]
    (judge,) = [one for one in document if one["check"] == "judge"]
    text = f"judged by rules {RULES + 1}, the present ones are {RULES}"
    assert (judge["mark"], judge["found"], judge["next_step"]) == ("warning", text, REJUDGE)
    assert done.stdout.count("plumb rejudge") == 1


def test_no_reward_is_remembered_under_another_judge() -> None:
    present = Config()
    other = Config(judge=JudgeConfig(rules=RULES + 1))
    sessions = [RewardSession(present), RewardSession(other), RewardSession(present, "a")]
    assert len({session.run for session in sessions}) == 3
    assert RewardSession(Config(), "a").run == sessions[2].run
