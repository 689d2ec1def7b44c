"""`plumb compare` end to end."""

import json

import pytest

from tests.cli.commands import plumb
from tests.shared.finished_runs import write_run

ROLLOUT = "config.actor_rollout_ref.rollout"


def compare(folder, *arguments):
    return plumb("compare", *arguments, folder=folder)


def found(folder, *arguments):
    """What the command writes as JSON about the first two runs' data sets."""
    done = compare(folder, *arguments, "--json", "found.json")
    assert done.code == 0, done.stderr
    return json.loads((folder / "found.json").read_text())["comparisons"][0]["datasets"]


@pytest.fixture
def pair(tmp_path):
    """Of ten problems three are gained and one is lost; of two of another set nothing changes."""
    write_run(tmp_path / "a", {"one": "++++-----t", "two": "+-"})
    write_run(tmp_path / "b", {"one": "+++-+++--t", "two": "+-"})
    return tmp_path


def test_differences_with_all_that_says_how_sure_they_are(pair):
    done = compare(pair, "a", "b")
    assert (done.code, done.stderr) == (0, "")
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["A", "a", "(a,", "model", "model-a)"] in lines
    (row,) = [line for line in lines if line[:2] == ["one", "accepted@1"]]
    assert row == [
        *("one", "accepted@1", "10", "40.0%", "60.0%", "+20.0"),
        *("-22.2", "…", "+55.5", "0.625", "62.6", "3/1"),
    ]
    (row,) = [line for line in lines if line[:2] == ["two", "accepted@1"]]
    assert row[2:6] == ["2", "50.0%", "50.0%", "+0.0"]
    assert row[-3:] == ["1", "100.0", "0/0"]


def test_no_difference_has_no_sign(tmp_path):
    """The differences, of thirds, add up to -1e-17."""
    write_run(tmp_path / "a", {"one": ["+--", "+++", "---"]})
    write_run(tmp_path / "b", {"one": ["---", "++-", "++-"]})
    assert "-0.0" not in compare(tmp_path, "a", "b").stdout


def test_flips_with_both_verdicts(tmp_path):
    write_run(tmp_path / "a", {"one": "+-+"})
    write_run(tmp_path / "b", {"one": "+++"[:2] + "t"}, detail="\x1b[31m[bold]")
    done = compare(tmp_path, "a", "b", "--show-flips")
    rows = [line.split() for line in done.stdout.splitlines() if " p00" in line]
    assert rows == [
        ["one", "p001", "0", "gained", "wrong_answer", "1/2", "success", "(�[31m[bold])", "2/2"],
        ["one", "p002", "0", "lost", "success", "2/2", "timeout", "(�[31m[bold])", "0/2"],
    ]
    assert "p001" not in compare(tmp_path, "a", "b").stdout


def test_a_pass_ratio_that_is_a_lower_bound_is_named_so(tmp_path):
    write_run(tmp_path / "a", {"one": "+t", "two": "+"})
    write_run(tmp_path / "b", {"one": "tt"}, cases_not_run=1)
    write_run(tmp_path / "c", {"one": "++"}, change={"config.judge.max_timeouts": None})
    done = compare(tmp_path, "a", "b", "--show-flips")
    assert done.code == 0, done.stderr
    assert "pass ratio, at least" in done.stdout
    assert (
        "one: cases of 2 of 2 pairs were not run (judge.max_timeouts) and count as failed in the "
        "pass ratio; the exact difference is between -50.0 and +0.0"
    ) in done.stdout
    assert "timeout 0/2, 1 not run" in " ".join(done.stdout.split())
    one = found(tmp_path, "a", "b")["one"]
    assert one["samples_cut"] == 2
    assert one["pass_ratio_bounds"]["best"]["difference"] == 0
    other = compare(tmp_path, "a", "c")
    assert "judge.max_timeouts is 4 in A and not set in B" in other.line
    assert "at least" not in compare(tmp_path, "a", "a").stdout


def test_what_has_no_partner_or_no_verdict_is_left_out_and_said(tmp_path):
    write_run(tmp_path / "a", {"one": "++-+!-", "mine": "+"})
    answers = {"one": "+++ + +"[:6] + "+", "theirs": "+"}
    planned = {"dataset": "one", "sha256": "hash-one", "problems": 7, "samples": 7}
    write_run(tmp_path / "b", answers, change={"datasets": [planned]})
    done = compare(tmp_path, "a", "b", "--json", "found.json")
    assert done.code == 0, done.stderr
    (said,) = [line for line in done.stdout.splitlines() if "unpaired" in line]
    # p003 and p005 are only in a, p006 only in b, p004 has no verdict in a.
    assert said == "one: 4 samples unpaired (only in A 2, only in B 1, api_error 1)"
    assert "mine: only in A, not compared" in done.stdout
    assert "theirs: only in B, not compared" in done.stdout
    assert "A: incomplete: 1 samples without a verdict" in done.stdout
    document = json.loads((tmp_path / "found.json").read_text())["comparisons"][0]["datasets"][
        "one"
    ]
    assert document["samples"] == 3


def test_what_differs_is_refused_in_one_line(tmp_path):
    write_run(tmp_path / "a", {"one": "+-"})
    rollout = {"temperature": 0.8, "top_p": 0.9, "top_k": 5, "n": 2, "response_length": 9}
    changes = {f"{ROLLOUT}.{name}": value for name, value in rollout.items()}
    write_run(tmp_path / "b", {"one": "+-"}, change={**changes, "config.sandbox.timeout": 3.0})
    done = compare(tmp_path, "a", "b")
    assert (done.code, done.stdout) == (2, "")
    assert done.line.startswith(
        "plumb: a (A) and b (B) cannot be compared: "
        "actor_rollout_ref.rollout.temperature is 0.0 in A and 0.8 in B; "
    )
    assert "; and 1 more differences; repeat one of the runs" in done.line


def test_forced_it_warns_and_goes_on(tmp_path):
    write_run(tmp_path / "a", {"one": "+-"})
    changes = {f"{ROLLOUT}.temperature": 0.8, "config.sandbox.timeout": 3.0}
    write_run(tmp_path / "b", {"one": "++"}, change=changes)
    done = compare(tmp_path, "a", "b", "--force")
    assert done.code == 0
    assert done.stderr.splitlines() == [
        "plumb: actor_rollout_ref.rollout.temperature is 0.0 in A and 0.8 in B",
        "plumb: sandbox.timeout is 10.0 in A and 3.0 in B",
    ]
    assert "accepted@1" in done.stdout


def test_three_runs_are_a_table(pair):
    write_run(pair / "c", {"one": "++++++++++", "two": "!!"})
    done = compare(pair, "a", "b", "c")
    assert done.code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["one", "A", "40.0%", "16.8%–68.7%"] in rows
    assert ["one", "B", "60.0%", "31.3%–83.2%", "+20.0", "-22.2", "…", "+55.5", "0.625"] in rows
    (best,) = [row for row in rows if row[:3] == ["one", "C", "100.0%"]]
    assert best[4] == "+60.0"
    assert ["two", "C", "–", "–", "–", "–", "–"] in rows


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (["a"], "one run cannot be compared"),
        (["a", "nowhere"], "nowhere: no run in this folder (no run.json)"),
        (["a", "other"], "A and B have no data set in common: one, two in A, three in B"),
        (["a", "torn"], "verdicts.jsonl:1: not a verdict (dataset: Field required)"),
        (["a", "b", "--json", "no/folder.json"], "cannot write no/folder.json: No such file"),
    ],
)
def test_what_cannot_be_compared_is_one_line(pair, runs, said):
    write_run(pair / "other", {"three": "+"})
    write_run(pair / "torn", {"one": "+"})
    (pair / "torn" / "verdicts.jsonl").write_text("{}\n{}\n")
    done = compare(pair, *runs)
    assert done.code == 2
    assert done.line.startswith("plumb: ")
    assert said in done.line
