"""`plumb data certify`: killed in the middle, repeated, and used by a run."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli import certify, verification
from services.data.layouts.base import Record, Solution
from services.data.records import ReferenceSolution, write_records
from shared.errors import DataError
from shared.schemas import Problem, SampleId
from tests.cli.commands import plumb
from tests.cli.fork_server import ROOT
from tests.shared.ledgers import generation, problem, verdict
from tests.waiting import until

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
    records = []
    for name, truth in tests.items():
        problem = Problem(
            dataset="small", problem_id=name, prompt=name, ground_truth=json.dumps(truth)
        )
        right = [Solution("python", code) for code in solutions.get(name, [])]
        wrong = [Solution("python", _PRODUCT)] if name == "sum" else []
        records.append(Record(problem, tuple(right), wrong=tuple(wrong)))
    write_records(str(file), records)
    return file


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_certificate_after_a_kill_and_a_score_corrected_by_it(tmp_path, shared_sandbox):
    file = write_set(tmp_path)
    settings = (f"sandbox.url={shared_sandbox}", "judge.canaries=false")
    command = ("data", "certify", str(file), "--mutants", "10", "--inputs", "20", *settings)
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
    document = json.loads(certificate.read_text())
    of = {one["problem_id"]: one for one in document["problems"]}
    assert of["sum"]["survivors"][0]["source"] == "incorrect solution 1"
    assert of["double"]["right_accepted"] == 1
    assert of["double"]["wrong_rejected"] > 0
    differences = [survivor["difference"] for survivor in of["double"]["survivors"]]
    assert any(
        "-    return min(2 * n, 10)\n+    return min(2 * n, 9)" in difference
        for difference in differences
    )
    assert of["double"]["survivors"][0]["expected"] == "10"
    assert of["nothing"]["right_accepted"] == of["nothing"]["wrong_rejected"] == 0
    assert "unknown, for want of right or of wrong programs: 1 (nothing)" in done.stdout
    completions = tmp_path / "answers.jsonl"
    answers = {"sum": _PRODUCT, "double": _DOUBLE, "nothing": "print(input())"}
    lines = [{"problem_id": name, "completion": code} for name, code in answers.items()]
    completions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = ("--data", str(file), "--completions", str(completions), "--embedded")
    sandbox = {"SANDBOX_URLS": shared_sandbox}
    judged = plumb("judge", *data, "--output", "out", folder=tmp_path, **sandbox)
    assert judged.code == 0, judged.stderr
    summary = json.loads((tmp_path / "out/phase0_summary.json").read_text())["small"]
    assert summary["accepted_at_1"] == 1.0
    assert summary["certified_problems"] == 3
    assert 0.4 < summary["wrong_rejected_rate"] < 1
    assert summary["accepted_at_1_corrected"] == 1.0
    assert "corrected for its tests" in judged.stdout


class _Accepted:
    """A run in place of a judge: accepts all programs; sample n takes n + 1 seconds."""

    def __init__(self, solutions):
        self._solutions = solutions

    def verdicts(self):
        for solution in self._solutions:
            name = solution.problem.problem_id
            sample = SampleId(solution.problem.dataset, name, solution.number)
            yield verdict(generation(sample), cpu_time=float(solution.number + 1))

    def cases(self):
        return []


def test_mutants_have_time_by_the_slowest_of_their_originals(tmp_path, monkeypatch):
    file = tmp_path / "small.parquet"
    truth = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
    right = [Solution("python", f"n = int(input())\nprint(n * {n})") for n in (3, 1)]
    record = Record(problem("p", "small", ground_truth=truth), tuple(right[::-1]))
    write_records(str(file), [record])
    asked: dict[str, list[ReferenceSolution]] = {}

    def judged(solutions, *_, name, quiet):
        asked[name] = list(solutions)
        return [_Accepted(solutions)] if solutions else []

    monkeypatch.setattr(certify, "judge_solutions", judged)
    certify.certify(str(file), mutants=10, inputs=10, output=str(tmp_path))
    limits = {mutant.problem.extra_info for mutant in asked["mutants"]}
    assert [json.loads(limit)["time_limit"] for limit in limits] == [4.0]


@pytest.mark.parametrize("truths", [["{}"], ['{"inputs": ["1"], "outputs": ["1"]}'] * 2])
def test_a_set_that_no_run_could_read_is_refused(tmp_path, truths):
    file = str(tmp_path / "small.parquet")
    problems = (problem("p", "small", ground_truth=truth) for truth in truths)
    write_records(file, map(Record, problems))
    with pytest.raises(DataError, match=rf"small.parquet: row {len(truths)}"):
        certify.certify(file, mutants=1, inputs=1, output=str(tmp_path))


def test_programs_with_other_numbers_tests_or_limits_are_another_run(tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(verification, "open_run", lambda folder: folder)
    monkeypatch.setattr(
        verification, "execute", lambda request: folders.append(request.config.output_dir)
    )
    python = Solution("python", "print(input())")
    first = ReferenceSolution(problem("p"), 0, python)
    limited = problem("p", extra_info=json.dumps({"time_limit": 3}))
    for one, overrides in (
        (first, ()),
        (ReferenceSolution(problem("p"), 1, python), ()),
        (ReferenceSolution(limited, 0, python), ()),
        (ReferenceSolution(problem("q"), 0, python), ()),
        (first, ("sandbox.timeout=3",)),
        (first, ()),
    ):
        list(verification.judge_solutions([one], tmp_path, overrides))
    *different, again = folders
    assert len(set(different)) == 5
    assert again == different[0]
