"""`plumb runs`, `plumb show` and `plumb rejudge`."""

import csv
import json
import re

import pytest

from services.data.records import write_dataset
from shared.analysis.paired import discordant_interval
from tests.cli.commands import in_terminal, plumb
from tests.shared.finished_runs import write_run as write_judged
from tests.shared.ledgers import problem


def write_run(folder, name="mine", finished_at=0, **fields):
    """A run without verdicts."""
    facts = {"name": name, "model": "m", "output": str(folder), "finished_at": finished_at}
    change = {**facts, "samples": 2, "samples_judged": 2, **fields}
    write_judged(folder, {"d1": "+-"}, summary={"accepted_at_1": 0.5}, change=change)
    (folder / "verdicts.jsonl").unlink()


def test_runs_are_listed_the_latest_first(tmp_path):
    write_run(tmp_path / "outputs" / "old", "old", finished_at=1000)
    write_run(tmp_path / "outputs" / "deep" / "new", "new\x1b[2J", finished_at=10**9)
    write_run(tmp_path / "outputs" / "torn", "torn")
    (tmp_path / "outputs" / "torn" / "run.json").write_text('{"name"')
    done = plumb("runs", folder=tmp_path)
    assert done.code == 0
    first, second = (
        line for line in done.stdout.splitlines() if "outputs/" in line and "m " in line
    )
    assert "2001-09-09 01:46" in first
    assert "50.0%" in first.split()
    assert second.startswith("old")
    assert "outputs/torn/run.json cannot be read" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_without_utf_8_gets_replacements(tmp_path):
    write_run(tmp_path / "runs" / "one", "Größe 日本 …")
    done = plumb("runs", "runs", folder=tmp_path, PYTHONIOENCODING="latin-1")
    assert (done.code, done.stderr) == (0, "")
    assert "e ??" in done.stdout
    done = plumb("show", "runs/日本", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.code, done.line[:16]) == (2, "plumb: runs/??: ")


def test_runs_that_are_interrupted_or_incomplete_are_listed_as_what_they_are(tmp_path):
    outputs = tmp_path / "outputs"
    write_run(outputs / "cut", "cut", started_at=9, finished_at=None, state="running")
    (outputs / "cut" / "phase0_summary.json").unlink()
    write_run(outputs / "part", "part", finished_at=1000, complete=False, samples_unjudged=1,
              samples_judged=1, state="incomplete")  # fmt: skip
    bounds = {"accepted_at_1": 1.0, "accepted_at_1_bounds": [0.5, 1.0], "api_errors": 1}
    (outputs / "part" / "phase0_summary.json").write_text(json.dumps({"d1": bounds}))
    done = plumb("runs", folder=tmp_path)
    assert done.code == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert rows["cut"] == ["cut", "outputs/cut", "m", "unfinished", "2"]
    assert rows["part"][2:7] == ["m", "1970-01-01", "00:16", "1/2", "incomplete"]
    assert "100.0% (50.0–100.0 with those not judged)" in " ".join(rows["part"])
    shown = plumb("show", "outputs/part", folder=tmp_path).stdout
    assert "if unjudged fail, pass 50.0%, 100.0%" in " ".join(shown.split())


def checkpoints(folder):
    """Three runs of one protocol, whose last gains 8 of 10 problems, and one of another."""
    answers = ("----------", "+---------", "+++++++++-")
    for place, letters in enumerate(answers):
        share = letters.count("+") / 10
        write_judged(folder / f"step{place}", {"one": letters}, summary={"accepted_at_1": share},
                     change={"finished_at": place + 1.0})  # fmt: skip
    other = {"finished_at": 9.0, "config.sandbox.timeout": 3.0}
    write_judged(folder / "other", {"one": answers[0]}, summary={"accepted_at_1": 0}, change=other)


def test_a_run_is_listed_with_its_difference_to_the_run_before(tmp_path):
    checkpoints(tmp_path / "outputs")
    done = plumb("runs", folder=tmp_path)
    assert done.code == 0, done.stderr
    rows = {line.split()[0]: " ".join(line.split()) for line in done.stdout.splitlines()}
    interval = discordant_interval(0, 8, 10)
    low, high = (f"{100 * end:+.1f}" for end in interval)
    assert rows["step2"].endswith(f"90.0% +80.0 ({low} … {high})")
    assert "10.0% +10.0 (" in rows["step1"]
    assert rows["step0"].endswith("0/0 0.0%")  # nothing was before it
    assert rows["other"].endswith("0/0 0.0%")  # another protocol
    # Without verdicts the difference is known, and its interval is not.
    (tmp_path / "outputs" / "step1" / "verdicts.jsonl").unlink()
    shown = " ".join(plumb("runs", folder=tmp_path).stdout.split())
    assert "90.0% +80.0 step1" in shown


def test_difference_and_interval_are_of_the_samples_that_both_runs_have(tmp_path):
    write_judged(tmp_path / "outputs" / "first", {"one": ["+--", "---"]},
                 summary={"accepted_at_1": 1 / 6}, change={"finished_at": 1.0})  # fmt: skip
    write_judged(tmp_path / "outputs" / "then", {"one": ["+", "+"]},
                 summary={"accepted_at_1": 1.0}, change={"finished_at": 2.0})  # fmt: skip
    change = "+50.0 ({} … {})".format(*(f"{100 * x:+.1f}" for x in discordant_interval(0, 1, 2)))
    assert change in " ".join(plumb("runs", folder=tmp_path).stdout.split())


def test_the_table_of_runs_for_a_paper(tmp_path):
    checkpoints(tmp_path / "outputs")
    interval = {"accepted_at_1": 0.5, "accepted_at_1_ci95": [0.25, 0.75]}
    write_judged(tmp_path / "outputs" / "a_b|c", {"two": "+-"}, summary=interval)
    printed = {
        kind: plumb("runs", "--format", kind, folder=tmp_path).stdout
        for kind in ("markdown", "latex", "csv")
    }
    low, high = discordant_interval(0, 8, 10)
    ends = f"({100 * low:+.1f} … {100 * high:+.1f})"
    assert f"| step2 | model-step2 | 90.0% +80.0 {ends} |  |" in printed["markdown"].splitlines()
    assert "| a_b\\|c | model-a_b\\|c |  | 50.0% [25.0–75.0] |" in printed["markdown"]
    assert r"a\_b|c & model-a\_b|c &  & 50.0\% [25.0--75.0] \\" in printed["latex"]
    assert r"\toprule" in printed["latex"]
    rows = {row["run"]: row for row in csv.DictReader(printed["csv"].splitlines())}
    assert (rows["step2"]["dataset"], rows["step2"]["accepted_at_1"]) == ("one", "0.9")
    assert float(rows["step2"]["difference_low"]) == pytest.approx(low)
    assert (rows["a_b|c"]["low"], rows["a_b|c"]["difference"]) == ("0.25", "")


def test_no_width_cuts_a_name_of_the_list_of_runs(tmp_path):
    checkpoints(tmp_path / "outputs")
    name = "a_run_with_a_name_of_49_characters_without_a_blank"
    write_judged(tmp_path / "outputs" / name, {"codecontests_valid": "+"},
                 summary={"accepted_at_1": 1.0, "accepted_at_1_ci95": [0.2, 1.0]})  # fmt: skip
    for command in (("runs",), ("show", f"outputs/{name}")):
        shown = in_terminal(*command, folder=tmp_path, columns=80, NO_COLOR="1")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert command[0] != "runs" or not re.search(r"\w…", shown)  # no name is cut
        assert max(map(len, shown.splitlines())) <= 80


def test_a_run_is_found_by_the_name_under_which_it_is_listed(tmp_path):
    write_run(tmp_path / "outputs" / "deep" / "one", "mine")
    write_run(tmp_path / "outputs" / "a", "twice")
    write_run(tmp_path / "outputs" / "b", "twice")
    (tmp_path / "mine").mkdir()  # as demo/ in a checkout
    for name in ("mine", "one-0123"):
        assert plumb("show", name, folder=tmp_path).stdout.split()[0] == "mine"
    twice = plumb("show", "twice", folder=tmp_path)
    assert twice.code == 2
    assert "2 runs are named twice: outputs/a, outputs/b; give the folder" in twice.line
    # Its folder below outputs, unless another run has that name.
    assert plumb("show", "deep/one", folder=tmp_path).stdout.split()[0] == "mine"
    assert plumb("show", "a", folder=tmp_path).stdout.split()[0] == "twice"
    write_run(tmp_path / "outputs" / "twice", "twice")
    assert "outputs/twice" in plumb("show", "twice", folder=tmp_path).stdout
    write_run(tmp_path / "outputs" / "mine", "other")
    both = plumb("show", "mine", folder=tmp_path).line
    assert "2 runs are named mine: outputs/deep/one, outputs/mine; give the folder" in both
    write_run(tmp_path / "outputs" / "cut")
    (tmp_path / "outputs" / "cut" / "phase0_summary.json").unlink()
    assert "outputs/cut: no phase0_summary.json" in plumb("show", "cut", folder=tmp_path).line
    # It has no verdicts; the message has the folder that the name stands for.
    assert (
        "outputs/deep/one/verdicts"
        in plumb("compare", "deep/one", "one-0123", folder=tmp_path).line
    )


@pytest.mark.e2e
def test_completions_are_judged_again(tmp_path, shared_sandbox):
    sandbox = {"SANDBOX_URLS": shared_sandbox}
    truth = json.dumps({"inputs": ["1\n"], "outputs": ["1 \n"]})
    # A run over a part of the data has that part judged again: nobody answers the third one.
    problems = [problem("p1", ground_truth=truth), problem("p2"), problem("p3")]
    write_dataset(str(tmp_path / "d1.parquet"), problems)
    answers = [
        {"problem_id": one, "completion": "print(1)", "output_tokens": 4} for one in ("p1", "p2")
    ]
    (tmp_path / "answers.jsonl").write_text(
        "".join(json.dumps(answer) + "\n" for answer in answers)
    )
    files = ("--data", "d1.parquet", "--completions", "answers.jsonl")
    done = plumb("judge", *files, "--output", "first", "--embedded", folder=tmp_path, **sandbox)
    assert done.code == 0, done.stderr
    # A blank at the end of a line does not matter to `tokens`, and does to `exact`.
    again = plumb("rejudge", "first", "judge.checker=exact", folder=tmp_path, **sandbox)
    assert again.code == 0, again.stderr
    assert "loaded 2/2" in again.stdout  # nothing is generated
    assert "generated" not in again.stdout
    folders = [tmp_path / "first", tmp_path / "first_rejudged"]
    runs = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert [run["statuses"]["success"] for run in runs] == [2, 1]
    assert runs[1]["parent"]["run"] == runs[0]["run"]
    for run in runs:  # a healthy sandbox
        (canaries,) = run["canaries"]["sandboxes"]
        assert canaries["right"] == canaries["sent"] > 0
    generations = [(folder / "generations.jsonl").read_text() for folder in folders]
    assert [json.loads(line)["output_tokens"] for line in generations[1].splitlines()] == [4, 4]
    # Other tests are no second opinion on the same problems.
    write_dataset(str(tmp_path / "d1.parquet"), [problem("p1"), *problems[1:]])
    changed = plumb("rejudge", "first", "--output", "third", folder=tmp_path)
    assert changed.code == 2
    assert "d1 has other prompts, tests or problems now" in changed.line
