"""Selection of indexed n-grams, and exact matches of their words."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.records import ProblemText
from tests.data.contamination.support import LEAKED, PROMPT, check, one, write_jsonl

NINE = "Write a function to find the longest common prefix."
PHRASE = "the first line of the input has the number of tests which is at most one hundred"


def problem(prompt, *solutions, problem_id="leaked"):
    return ProblemText("demo", problem_id, prompt, solutions)


def test_a_short_prompt_is_one_ngram_of_all_its_words(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"# TASK: {NINE.upper()} Thanks!"}])
    found = one(check(path, problems=[problem(NINE)]))
    assert found.contaminated
    assert (found.statement.ngrams, found.statement.hit.share) == (1, 1)
    assert found.statement.hit.excerpt == "write a function to find the longest common prefix"
    assert not one(check(path, problems=[problem(NINE + " Again.")])).documents


EUCLID = "def greatest_common_divisor(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n"


def test_what_is_in_any_code_base_contaminates_nothing(tmp_path):
    add = "def add(a, b):\n    return a + b\n"
    for code in (
        "def f(x, y):\n    return x + y\n",
        EUCLID.replace("greatest_common_divisor", "gcd"),
        "def first(xs):\n    return xs[0]\n",
    ):
        path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"import os\n\n\n{code}"}])
        report = check(path, problems=[problem(PROMPT, add, EUCLID)])
        assert not one(report).contaminated, code


def test_an_idiom_with_the_solutions_names_contaminates(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"import os\n\n\n{EUCLID}\n\nx = 1"}])
    found = one(check(path, problems=[problem(PROMPT, EUCLID)]))
    assert found.solutions.contaminated
    assert not found.statement.contaminated


def test_what_is_too_short_is_named(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": "Sort it."}])
    report = check(path, problems=[problem("Sort it.", "x = 1"), LEAKED])
    assert one(report, "leaked").unchecked == (
        "statement: 2 words, not specific enough to check",
        "solution 1: 3 words, not specific enough to check",
    )
    assert report.document()["counts"]["unchecked"] == 1


def test_phrases_of_many_problems_are_nobodys_own(tmp_path):
    problems = [problem(PHRASE, problem_id=str(number)) for number in range(3)]
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PHRASE}])
    for max_problems, counted in ((3, True), (2, False)):
        report = check(path, problems=problems, max_problems=max_problems)
        assert [one.contaminated for one in report.problems] == [counted] * 3
        why = () if counted else ("statement: only phrases of more than 2 problems",)
        assert report.problems[0].unchecked[1:] == why
    own = [problem(PHRASE, *[PHRASE] * 5)]
    assert one(check(path, problems=own, max_problems=2)).contaminated


WORDS = st.lists(st.sampled_from(["a", "b", "count"]), max_size=12).map(" ".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=st.lists(WORDS, min_size=1, max_size=4),
    documents=st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=6),
    max_problems=st.integers(2, 4),
)
def test_counts_are_those_of_comparing_words(tmp_path, prompts, documents, max_problems):
    """Against the plain definition, with 5-grams of three words, so that much is shared."""
    problems = [problem(text, problem_id=str(number)) for number, text in enumerate(prompts)]
    path = write_jsonl(tmp_path / "c.jsonl", [*documents, "a last one that has text"])
    report = check(path, problems=problems, size=5, max_problems=max_problems)
    grams = [_grams(text) for text in prompts]
    held = [set().union(*(_grams(text) for text in texts)) for texts in documents]
    for number, own in enumerate(grams):
        own = {gram for gram in own if sum(gram in other for other in grams) <= max_problems}
        found = one(report, str(number))
        assert found.statement.ngrams == len(own)
        assert found.documents == sum(bool(own & texts) for texts in held)
        shares = [len(own & texts) / len(own) if own else 0 for texts in held]
        if found.documents:
            assert found.statement.hit.share == max(shares)
            assert found.statement.hit.row == shares.index(max(shares)) + 1


def _grams(text):
    words = text.split()
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


DOCSTRING = '''\
def tallest(trees, hill):
    """Return how many of the trees a visitor can see from hill when the morning fog has lifted,
    without any of the trees behind hill that were planted after the great storm.
    """
'''


def test_a_statement_is_found_with_other_names_but_not_with_other_words(tmp_path):
    renamed = re.sub("tallest|trees|hill", lambda match: match[0][::-1] + "_of_it", DOCSTRING)
    for text, found in ((renamed, True), (renamed.replace("visitor", "farmer"), False)):
        path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"an example\n{text}\nand so on"}])
        assert one(check(path, problems=[problem(DOCSTRING)])).statement.contaminated is found
