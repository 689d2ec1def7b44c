"""`plumb gate` end to end."""

import itertools
import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.cli.commands import plumb
from tests.cli.fork_server import ROOT
from tests.shared.finished_runs import write_run

GO, NO_GO, USAGE, INCONCLUSIVE = 0, 1, 2, 4
HALF = "+-" * 100


def gate(folder, policy, *arguments):
    text = policy if isinstance(policy, str) else yaml.safe_dump(policy)
    (folder / "policy.yaml").write_text(text)
    return plumb("gate", "a", "b", "--policy", "policy.yaml", *arguments, folder=folder)


def runs(folder, first, second, **second_run):
    write_run(folder / "a", {"one": first}, summary={"avg_total_gen_tokens": 100.0})
    write_run(folder / "b", {"one": second}, **second_run)
    return folder


def accepted(least, confidence="interval"):
    return {"default": {"accepted_at_1": {"min_difference": least, "confidence": confidence}}}


# Of 200 problems ten are lost (5 points): the interval is -9.0 … -1.9.
TEN_LOST = "--" * 10 + "+-" * 90


@pytest.mark.parametrize(
    ("policy", "code", "why"),
    [
        (accepted(-0.1), GO, "whole interval within"),
        (accepted(-0.01), NO_GO, "whole interval beyond"),
        (accepted(-0.05), INCONCLUSIVE, "interval too wide"),
        (accepted(-0.05, "point"), GO, "difference within"),
        (accepted(-0.049, "point"), NO_GO, "difference beyond"),
    ],
)
def test_a_difference_against_its_limit(tmp_path, policy, code, why):
    done = gate(runs(tmp_path, HALF, TEN_LOST), policy)
    assert done.code == code
    (row,) = [line for line in done.stdout.splitlines() if "accepted_at_1" in line]
    assert why in row
    assert "-5.00 (-8." in row


def test_a_rule_that_fails_decides_over_one_that_cannot_be_decided(tmp_path):
    policy = accepted(-0.05)
    policy["default"]["max_new_failures"] = 9
    done = gate(runs(tmp_path, HALF, TEN_LOST), policy, "--json", "found.json")
    assert done.code == NO_GO
    assert done.line == "plumb: no-go: one new failures (of 4 rules)"
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["outcome"] == "fail"
    assert {each["rule"]: each["outcome"] for each in document["findings"]} == {
        "coverage": "pass",
        "problems": "pass",
        "new failures": "fail",
        "accepted_at_1": "undecided",
    }


def test_an_incomplete_run_cannot_be_judged_even_where_rules_fail(tmp_path):
    folder = runs(tmp_path, HALF, "!" + TEN_LOST[1:])
    policy = {"default": {"max_new_failures": 3}}
    done = gate(folder, policy)
    assert done.code == INCONCLUSIVE
    assert done.line == "plumb: inconclusive: one coverage (of 3 rules)"
    assert "A 100.00%, B 99.50%" in done.stdout
    assert gate(folder, {"default": {"max_new_failures": 3, "min_coverage": 0.99}}).code == NO_GO


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config.sandbox.timeout": 3.0}, "sandbox.timeout is 10.0 in A and 3.0 in B"),
        ({"state": "running"}, "B is running"),
    ],
)
def test_runs_that_cannot_be_compared(tmp_path, change, said):
    folder = runs(tmp_path, HALF, TEN_LOST, change=change)
    done = gate(folder, {"default": {"max_new_failures": 0}})
    assert done.code == INCONCLUSIVE
    assert said in done.stdout
    assert "new failures" not in done.stdout


def test_rules_for_a_data_set_that_is_not_there(tmp_path):
    done = gate(runs(tmp_path, "+", "+"), "datasets: {three: {min_problems: 3}}")
    assert done.code == USAGE
    assert done.line == (
        "plumb: the policy has rules for 'three', which neither run has; the runs have one"
    )


def test_an_output_that_cannot_be_written_is_no_verdict(tmp_path):
    (runs(tmp_path, HALF, HALF) / "policy.yaml").write_text(yaml.safe_dump(accepted(-0.1)))
    # Buffered, as by default: what cannot be written is tried again at the end.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    reader, closed = os.pipe()  # as after `| head -1`
    os.close(reader)
    outputs = ((os.open("/dev/full", os.O_WRONLY), "No space left"), (closed, ""))
    commands = (["gate", "a", "b", "--policy", "policy.yaml"], ["runs", "."])
    for arguments, (output, said) in itertools.product(commands, outputs):
        done = subprocess.run(
            [sys.executable, "-m", "services.cli", *arguments],
            cwd=tmp_path, env=environment, stdout=output,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, said in done.stderr) == (USAGE, True), arguments
        assert len(done.stderr.splitlines()) <= 1
    for output, _ in outputs:
        os.close(output)


def test_a_closed_output_is_no_error(tmp_path):
    runs(tmp_path, HALF, HALF)
    command = [sys.executable, "-m", "services.cli", "runs", "."]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_results_are_written_to_a_pipe(tmp_path):
    """As to /dev/stdout, which root could replace by a file."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    done = gate(runs(tmp_path, HALF, HALF), accepted(-0.1), "--json", "pipe")
    assert done.code == GO
    assert json.loads(os.read(pipe, 65536))["outcome"] == "pass"
    os.close(pipe)
