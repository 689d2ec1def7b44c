"""Precision and recall for leaked problems in 12 disguises each."""

import gzip
import json
import random
import re
import sysconfig
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Figures:
    planted: int
    found: int
    accused: int

    @property
    def recall(self):
        return self.found / self.planted

    @property
    def precision(self):
        return self.found / max(1, self.found + self.accused)

    def __str__(self):
        rates = f"precision {self.precision:.3f}, recall {self.recall:.3f}"
        return f"{self.planted:4} planted, {rates}"


class Planting:
    """Problems of which some are planted in a corpus, between other people's programs."""

    def __init__(self, problems, count, folder):
        self.problems = problems
        self.planted = random.Random(7).sample(problems, count)
        self.folder = folder
        # The standard library's source, in documents as long as a web page.
        stdlib = Path(sysconfig.get_path("stdlib"))
        texts = [path.read_text("utf-8", "replace") for path in sorted(stdlib.glob("*.py"))]
        self.clean = [text[at : at + 3000] for text in texts for at in range(0, len(text), 3000)]

    def leaked(self, part, disguise):
        """The planted problems that have the part, and it in its disguise."""
        for problem in self.planted:
            if part is Part.STATEMENT:
                yield problem, disguise(problem.statement)
            elif problem.solutions:
                yield problem, disguise(problem.solutions[0])

    def figures(self, part, leaks):
        dice = random.Random(3)
        rows = [{"text": text} for text in dice.choices(self.clean, k=100)]
        for _, text in leaks:
            before, after = dice.choices(self.clean, k=2)
            rows.append({"text": f"{before[:700]}\n\n{text}\n\n{after[:700]}"})
        report = check(write_jsonl(self.folder / "corpus.jsonl", rows), problems=self.problems)
        planted = {problem.problem_id: problem for problem, _ in leaks}
        overlaps = {one.problem_id: getattr(one, part) for one in report.problems}
        accused = {one.problem_id for one in report.contaminated} - planted.keys()
        same = SAME_QUESTIONS | SAME_SOLUTIONS
        wrong = {
            name for name in accused if not any(frozenset((name, leak)) in same for leak in planted)
        }
        missed = [name for name in planted if not overlaps[name].contaminated]
        return Figures(len(planted), len(planted) - len(missed), len(wrong)), missed, wrong


def measure(planting, part, disguises, out):
    """Figures of all that was planted, and by disguise."""
    by_disguise = {}
    for name, disguise in disguises.items():
        figures, missed, wrong = planting.figures(part, list(planting.leaked(part, disguise)))
        by_disguise[name] = figures
        out(f"{part:9} {name:22} {figures} missed: {missed[:6]} accused: {sorted(wrong)}")
    names = ("planted", "found", "accused")
    figures = by_disguise.values()
    everything = Figures(*(sum(getattr(figure, name) for figure in figures) for name in names))
    out(f"{part:9} {'all':22} {everything}")
    return everything, by_disguise


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
    planting = Planting(public_problems, PLANTED, tmp_path)
    with capsys.disabled():
        print()
        everything, by_disguise = measure(planting, part, DISGUISES[part], print)
    assert everything.accused == 0
    assert everything.recall >= LEAST_RECALL[part]
    assert {name for name, one in by_disguise.items() if one.recall < 0.9} == set()


@pytest.mark.parametrize("part", DISGUISES)
def test_disguised_leaks_of_the_demo_are_found(tmp_path, part):
    files = sorted(Path("demo/data").glob("*.parquet"))
    problems = [text_of(record) for file in files for record in read_records(str(file))]
    planting = Planting(problems, len(problems) // 2, tmp_path)
    chosen = DEMO_DISGUISES[part]
    disguises = {name: DISGUISES[part][name] for name in chosen}
    lines = []
    everything, by_disguise = measure(planting, part, disguises, lines.append)
    assert everything.accused == 0, lines
    assert {name for name, one in by_disguise.items() if one.recall < 0.9} == set(), lines
