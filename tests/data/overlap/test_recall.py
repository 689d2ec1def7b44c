"""Recall and precision of overlap detection on disguised copies."""

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from services.data.overlap import OverlapKind, find_overlaps
from tests.data.overlap.disguises import DISGUISES, disguised, renamed
from tests.data.overlap.support import demo_problems, problem, program
from tests.data.support import SAME_QUESTIONS, SAME_SOLUTIONS, problems_of


def score(originals, copies, same=frozenset()):
    """Precision, recall and what was missed; ``copies[i]`` is of ``originals[i]``."""
    names = {
        copy.problem_id: original.problem_id
        for original, copy in zip(originals, copies, strict=True)
    }
    overlaps = find_overlaps([*originals, *copies])
    found, wrong = set(), set()
    for overlap in overlaps:
        sides = sorted((overlap.a, overlap.b), key=lambda side: side.dataset == "copies")
        pair = sides[0].problem_id, names.get(sides[1].problem_id)
        if sides[0].dataset == "copies" or pair[1] is None or frozenset(pair) in same:
            continue
        (found if pair[0] == pair[1] else wrong).add(pair)
    missed = tuple(name for name in names.values() if (name, name) not in found)
    precision = len(found) / max(1, len(found) + len(wrong))
    return precision, len(found) / len(copies), missed


def without_solutions(problems):
    return [replace(one, solutions=()) for one in problems]


def test_disguised_prompts():
    originals, random = without_solutions(demo_problems()), Random(11)
    recalls = []
    for name in DISGUISES:
        copies = [disguised(one, name, random) for one in originals]
        precision, recall, _ = score(originals, copies)
        assert precision >= 0.99, name
        recalls.append(recall)
    assert fmean(recalls) >= 0.95


def test_renamed_solutions_under_other_questions():
    random = Random(5)
    programs = [program(random) for _ in range(250)]
    originals = [problem("own", f"{n}", f"Task {n}", code) for n, code in enumerate(programs)]
    copies = [
        problem("copies", f"copy of {n}", f"Question {n}", renamed(code, random))
        for n, code in enumerate(programs)
    ]
    precision, recall, _ = score(originals, copies)
    assert precision >= 0.99
    assert recall >= 0.95


@pytest.fixture(scope="module")
def public_problems(real_data):
    return [
        *problems_of("humaneval", real_data / "HumanEval.jsonl.gz"),
        *problems_of("mbpp", real_data / "mbpp.jsonl"),
        *problems_of("code_contests", real_data / "code_contests_test_40.jsonl.gz"),
    ]


@pytest.mark.real_data
def test_public_problems_overlap_only_where_they_are_the_same(public_problems):
    overlaps = find_overlaps(public_problems)
    by_solution = {
        frozenset((overlap.a.problem_id, overlap.b.problem_id))
        for overlap in overlaps
        if OverlapKind.SOLUTION_NGRAMS in overlap.findings
    }
    by_prompt = {
        frozenset((overlap.a.problem_id, overlap.b.problem_id))
        for overlap in overlaps
        if set(overlap.findings) - {OverlapKind.SOLUTION_NGRAMS}
    }
    assert by_prompt == SAME_QUESTIONS
    assert by_solution == SAME_SOLUTIONS


@pytest.mark.nightly
@pytest.mark.real_data
def test_disguised_public_prompts(public_problems, capsys):
    originals = without_solutions(public_problems)
    random, names = Random(11), sorted(DISGUISES)
    copies = [
        disguised(original, names[number % len(names)], random)
        for number, original in enumerate(originals)
    ]
    precision, recall, missed = score(originals, copies, SAME_QUESTIONS)
    with capsys.disabled():
        print(f"\n{precision=:.3f}, {recall=:.3f}, missed: {', '.join(missed[:5])}")
    assert precision >= 0.99
    assert recall >= 0.95
