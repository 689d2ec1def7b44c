"""Precision and recall for leaked problems in 12 disguises each."""

import gzip
import json
import random
import re
import sysconfig
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from services.data.contamination.index import Part
from services.data.records import ProblemText, read_records, text_of
from tests.data.contamination.disguises import SOLUTIONS, STATEMENTS
from tests.data.contamination.support import check, write_jsonl
from tests.data.support import SAME_QUESTIONS, SAME_SOLUTIONS, problems_of

DISGUISES = {Part.STATEMENT: STATEMENTS, Part.SOLUTIONS: SOLUTIONS}

# The others take long, and go over the public sets.
DEMO_DISGUISES = {
    Part.STATEMENT: ["verbatim", "tabs, CRLF", "renamed", "nested JSON", "HTML"],
    Part.SOLUTIONS: ["verbatim", "JSON", "HTML", "annotated in a class", "renamed, reformatted"],
}

LEAST_RECALL = {Part.STATEMENT: 0.99, Part.SOLUTIONS: 0.95}
PLANTED = 320
MBPP_PROBLEMS = 420
FENCE = re.compile(r"```(?:python|cpp|c\+\+|py)?\n(.*?)```", re.DOTALL)


def measure(problems, count, part, disguises, folder):
    """Plant problems in each disguise between other people's programs; the recall by disguise.

    No other problem may be found, unless it is the same question.
    """
    planted = random.Random(7).sample(problems, count)
    if part is Part.STATEMENT:
        texts = {problem.problem_id: problem.statement for problem in planted}
    else:
        texts = {one.problem_id: one.solutions[0] for one in planted if one.solutions}
    same = {
        name for pair in SAME_QUESTIONS | SAME_SOLUTIONS if pair & texts.keys() for name in pair
    }
    # The standard library's source, in documents as long as a web page.
    stdlib = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    sources = [path.read_text("utf-8", "replace") for path in stdlib]
    clean = [text[at : at + 3000] for text in sources for at in range(0, len(text), 3000)]
    recalls = {}
    for name, disguise in disguises.items():
        dice = random.Random(3)
        rows = [{"text": text} for text in dice.choices(clean, k=100)]
        for text in texts.values():
            before, after = dice.choices(clean, k=2)
            rows.append({"text": f"{before[:700]}\n\n{disguise(text)}\n\n{after[:700]}"})
        report = check(write_jsonl(folder / "corpus.jsonl", rows), problems=problems)
        assert {problem.problem_id for problem in report.contaminated} <= texts.keys() | same, name
        parts = {problem.problem_id: getattr(problem, part) for problem in report.problems}
        missed = [problem for problem in texts if not parts[problem].contaminated]
        recalls[name] = 1 - len(missed) / len(texts)
        print(f"{part:9} {name:22} {len(texts)} planted, recall {recalls[name]:.3f} {missed[:6]}")
    return recalls


def contest_solutions(path):
    """Accepted answers by problem; the shared rows of CodeContests have no solutions."""
    found = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for answer in map(json.loads, file):
            if answer["oracle"]["tokens"] == answer["oracle"]["n"]:
                blocks = FENCE.findall(answer["response"])
                found[answer["problem"]].append(blocks[-1] if blocks else answer["response"])
    return found


@pytest.fixture(scope="module")
def public_problems(real_data):
    accepted = contest_solutions(real_data / "code_contests_completions.jsonl.gz")
    mbpp = list(problems_of("mbpp", real_data / "mbpp.jsonl"))
    contests = problems_of("code_contests", real_data / "code_contests_test_40.jsonl.gz")
    with_solutions = [
        ProblemText(
            contest.dataset,
            contest.problem_id,
            contest.statement,
            tuple(accepted[contest.problem_id][:3]),
        )
        for contest in contests
    ]
    return [
        *problems_of("humaneval", real_data / "HumanEval.jsonl.gz"),
        *random.Random(5).sample(mbpp, MBPP_PROBLEMS),
        *with_solutions,
    ]


@pytest.mark.nightly
@pytest.mark.real_data
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", DISGUISES)
def test_disguised_leaks_of_the_public_sets_are_found(public_problems, tmp_path, capsys, part):
    with capsys.disabled():
        print()
        recalls = measure(public_problems, PLANTED, part, DISGUISES[part], tmp_path)
        print(f"{part:9} all: recall {fmean(recalls.values()):.3f}")
    assert fmean(recalls.values()) >= LEAST_RECALL[part]
    assert min(recalls.values()) >= 0.9


@pytest.mark.parametrize("part", DISGUISES)
def test_disguised_leaks_of_the_demo_are_found(tmp_path, part):
    files = sorted(Path("demo/data").glob("*.parquet"))
    problems = [text_of(record) for file in files for record in read_records(str(file))]
    disguises = {name: DISGUISES[part][name] for name in DEMO_DISGUISES[part]}
    recalls = measure(problems, len(problems) // 2, part, disguises, tmp_path)
    assert min(recalls.values()) >= 0.9
