"""`plumb data` end to end."""

import json

import pytest
import yaml

from tests.cli.commands import plumb
from tests.data.prepare.support import PROMPTS, Desk, row


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.source("train", [row(0, reference_solution="print(3)"), row(1)], role="train")
    desk.source("test", [row(2)])
    return desk


def data(desk, command, *arguments, **environment):
    (desk.folder / "data.yaml").write_text(
        yaml.safe_dump(desk.config.model_dump(mode="json"), sort_keys=False)
    )
    command = ("data", command, "--config", "data.yaml", *arguments)
    return plumb(*command, folder=desk.folder, **environment)


def test_prepare_and_check(desk):
    done = data(desk, "prepare", "--offline")
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:3] == ["train: 2 rows", "test: 1 rows", "comparing 3 problems: 0 pairs are alike"]
    assert str(desk.manifests / "manifest.lock.json") in lines
    checked = data(desk, "check")
    assert checked.code == 0
    assert "3 problems of 2 sets: 0 differences, 0 overlaps, 0 reviewed" in checked.stdout


def test_an_overlap_is_exit_code_1_with_the_pair_and_its_figures(desk):
    leaked = f"\x1b[31m{PROMPTS[0]}"
    desk.source("test", [row(2), row(3, prompt=leaked, problem_id="leak\x1b[2J")])
    done = data(desk, "prepare")
    assert done.code == 1
    assert done.line.startswith("plumb: 1 pairs of problems of different sets overlap; see ")
    (pair,) = [line for line in done.stdout.splitlines() if "<->" in line]
    assert "train/p0" in pair
    assert "near 0." in pair
    assert "\x1b" not in done.stdout
    assert done.stdout.count("ead two integers from standard input") == 2
    (entry,) = desk.listed("overlaps")
    assert entry["reviewed"] is None
    assert entry["findings"]["near"] > 0.9
    checked = data(desk, "check")
    assert checked.code == 1
    assert "0 differences, 1 overlaps, 0 reviewed" in checked.stdout
    # Named in the file of reviews it is none.
    review = [{"a": entry["a"], "b": entry["b"], "reason": "planted"}]
    (desk.folder / "reviewed.yaml").write_text(yaml.safe_dump(review))
    assert data(desk, "check", "--allow", "reviewed.yaml").code == 0
    assert data(desk, "prepare", "--allow", "reviewed.yaml").code == 0
    assert desk.listed("overlaps")[0]["reviewed"] == "planted"


def test_data_that_differ_from_the_lock_are_exit_code_1(desk):
    data(desk, "prepare")
    desk.data("test").write_bytes(desk.data("train").read_bytes())
    done = data(desk, "check")
    assert done.code == 1
    assert "test.parquet has SHA-256" in done.stdout
    assert done.line == "plumb: the prepared sets have differences or open overlaps; see above"


def test_contamination(desk):
    data(desk, "prepare")
    corpus = desk.folder / "corpus.jsonl"
    texts = ["Nothing of it is in here.", f"Homework:\n{PROMPTS[1]}\nAnswer: 7"]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    files = ["--data", str(desk.data("train")), "--data", str(desk.data("test"))]
    done = plumb(
        *("data", "contamination", *files, "--against", str(corpus), "--output", "found.json"),
        folder=desk.folder,
    )
    assert done.code == 1
    assert done.line == "plumb: 1 of 3 problems are in the training corpus"
    assert f"{corpus}:2" in done.stdout.replace("\n", "").replace(" ", "")
    document = json.loads((desk.folder / "found.json").read_text())
    assert [
        problem["problem_id"] for problem in document["problems"] if problem["contaminated"]
    ] == ["p1"]
    # The report is printed even if its file cannot be written.
    report = ["--against", str(corpus), "--output", str(corpus / "found.json")]
    done = plumb("data", "contamination", *files, *report, folder=desk.folder)
    assert done.code == 2
    assert "1 of 3 problems contaminated" in done.stdout
    corpus.write_text(json.dumps({"text": texts[0]}) + "\n")
    clean = plumb("data", "contamination", *files, "--against", str(corpus), folder=desk.folder)
    assert clean.code == 0, clean.stderr


def test_what_cannot_be_done_is_one_line_and_exit_code_2(tmp_path):
    corpus = ["contamination", "--data", "x.parquet", "--against", "y"]
    cases = [
        (["prepare"], "--config"),
        (["prepare", "--config", "none.yaml"], "none.yaml"),
        (["check"], "--config"),
        (["check", "none.parquet"], "none.parquet"),
        (corpus, "x.parquet"),
        ([*corpus, "--ngram", "0"], "--ngram 0"),
        ([*corpus, "--min-share", "1.5"], "--min-share 1.5"),
    ]
    failures = []
    for arguments, named in cases:
        done = plumb("data", *arguments, folder=tmp_path)
        if done.code != 2 or done.stderr.count("\n") != 1 or named not in done.stderr:
            failures.append((arguments, done))
    assert failures == []


@pytest.mark.e2e
def test_wrong_solutions_and_checkers_are_found(desk, shared_sandbox):
    """Where solutions are run: a checker that rejects what is expected, and outputs that differ."""
    tests = {"inputs": ["1\n", "2\n"], "outputs": ["1 2\n", "5\n"]}
    strict = "def check(input, output, expected):\n    return output == '1 2\\n'\n"
    fine = "def check(input, output, expected):\n    return output.split() == expected.split()\n"
    right = "print('1 2' if input() == '1' else 5)"
    other = "print('2 1' if input() == '1' else 5)"
    desk.source("train", [
        row(0, ground_truth=tests, reference_solution=other),
        row(1, ground_truth={**tests, "checker_source": strict}, reference_solution=other),
        row(3, ground_truth={**tests, "checker_source": fine}, reference_solution=right),
        row(2, reference_solution="print(4)"),
    ])  # fmt: skip
    desk.source("test", [row(4, prompt="Print how many of the letters of a poem are capitals.")])
    done = data(desk, "prepare", "--verify-solutions", SANDBOX_URLS=shared_sandbox)
    assert done.code == 0, done.stderr
    assert [line["quality"] for line in desk.listed("train")] == [
        "rejected_solution,many_answers", "broken_checker", "ok", "rejected_solution",
    ]  # fmt: skip
    reasons = [entry["reason"] for entry in desk.listed("quality_train")]
    assert 'solution 1 prints "2 1" where test 1 expects "1 2"' in reasons
    assert "the problem's checker failed: rejects the expected output" in reasons
    assert "solution 1: wrong_answer, 0 of 1 tests passed" in reasons
