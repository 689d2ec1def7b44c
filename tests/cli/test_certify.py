"""`plumb data certify` end to end: killed in the middle, repeated, and used by a run."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.data.layouts.base import Solution
from services.data.records import writing_dataset
from shared.schemas import Problem
from tests.cli.commands import plumb
from tests.cli.fork_server import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

_SUM = "a, b = map(int, input().split())\nif a > b:\n    a, b = b, a\nprint(a + b)\n"
_PRODUCT = "a, b = map(int, input().split())\nprint(a * b)\n"
_DOUBLE = "def double(n):\n    return min(2 * n, 10)\n"
_CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n"


def write_set(folder: Path) -> Path:
    tests = {
        "sum": {"inputs": ["2 2\n", "0 0\n"], "outputs": ["4\n", "0\n"]},
        "double": {"test": _CHECK, "entry_point": "double", "prompt": "def double(n):\n"},
        "nothing": {"inputs": ["1\n"], "outputs": ["1\n"]},
    }
    solutions = {"sum": [_SUM, "print(4)"], "double": [_DOUBLE]}
    file = folder / "small.parquet"
    with writing_dataset(str(file), solutions=True) as writer:
        for name, truth in tests.items():
            problem = Problem(
                dataset="small", problem_id=name, prompt=name, ground_truth=json.dumps(truth)
            )
            right = [Solution("python", code) for code in solutions.get(name, [])]
            wrong = [Solution("python", _PRODUCT)] if name == "sum" else []
            writer.add(problem, right, wrong=wrong)
    return file


@pytest.mark.timeout(240)
def test_a_certificate_after_a_kill_and_a_score_corrected_by_it(tmp_path):
    file = write_set(tmp_path)
    command = ("data", "certify", str(file), "--mutants", "10", "--inputs", "20")
    with (tmp_path / "log").open("w") as log:
        killed = subprocess.Popen(
            [sys.executable, "-m", "services.cli", *command],
            cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, stdout=log,
            stderr=log,
        )  # fmt: skip
        runs = tmp_path / "data/certify/small"
        until("the first step", lambda: any(runs.glob("labelled/*/report.html")))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    certificate = file.with_suffix(".certificate.json")
    assert not certificate.exists()
    done = plumb(*command, folder=tmp_path)
    assert done.code == 0, done.stderr
    assert "resuming: 4 loaded, 4 judged" in done.stdout
    assert "bad label, left out: sum, solution 2: wrong_answer, 1 of 2 tests passed" in done.stdout
    found = json.loads(certificate.read_text())
    of = {one["problem_id"]: one for one in found["problems"]}
    assert of["sum"]["survivors"][0]["source"] == "incorrect solution 1"
    assert of["double"]["right_accepted"] == 1
    assert of["double"]["wrong_rejected"] > 0
    differences = [one["difference"] for one in of["double"]["survivors"]]
    assert any(
        "-    return min(2 * n, 10)\n+    return min(2 * n, 9)" in one for one in differences
    )
    assert of["double"]["survivors"][0]["expected"] == "10"
    assert of["nothing"]["right_accepted"] == of["nothing"]["wrong_rejected"] == 0
    assert "unknown, for want of right or of wrong programs: 1 (nothing)" in done.stdout
    completions = tmp_path / "answers.jsonl"
    answers = {"sum": _PRODUCT, "double": _DOUBLE, "nothing": "print(input())"}
    lines = [{"problem_id": name, "completion": code} for name, code in answers.items()]
    completions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = ("--data", str(file), "--completions", str(completions), "--embedded")
    judged = plumb("judge", *data, "--output", "out", folder=tmp_path)
    assert judged.code == 0, judged.stderr
    summary = json.loads((tmp_path / "out/phase0_summary.json").read_text())["small"]
    assert summary["accepted_at_1"] == 1.0
    assert summary["certified_problems"] == 3
    assert 0.4 < summary["wrong_rejected_rate"] < 1
    assert summary["accepted_at_1_corrected"] == 1.0
    assert "corrected for its tests" in judged.stdout
