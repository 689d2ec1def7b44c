"""Selection of indexed n-grams, and exact matches of their words."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.contamination import index
from services.data.contamination.index import EvalProblem
from tests.data.contamination.support import LEAKED, PROMPT, check, one, write_jsonl

NINE = "Write a function to find the longest common prefix."
PHRASE = "the first line of the input has the number of tests which is at most one hundred"


def problem(prompt, *solutions, problem_id="leaked"):
    return EvalProblem("demo", problem_id, prompt, solutions)


def test_a_short_prompt_is_one_ngram_of_all_its_words(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"# TASK: {NINE.upper()} Thanks!"}])
    found = one(check(path, problems=[problem(NINE)]))
    assert found.contaminated
    assert (found.prompt.ngrams, found.prompt.hit.share) == (1, 1)
    assert found.prompt.hit.excerpt == "write a function to find the longest common prefix"
    assert not one(check(path, problems=[problem(NINE + " Again.")])).documents


def test_short_solutions_are_reported_but_contaminate_nothing(tmp_path):
    code = "while b:\n    a, b = b, a % b\nreturn a"
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": code}])
    found = one(check(path, problems=[problem(PROMPT, code)]))
    assert found.solutions.hit.share == 1
    assert not found.contaminated


def test_what_is_too_short_is_named(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": "Sort it."}])
    report = check(path, problems=[problem("Sort it.", "x = 1"), LEAKED])
    assert one(report, "leaked").unchecked == (
        "prompt: 2 words, fewer than 8 are too short to check",
        "solution 1: 2 words, fewer than 8 are too short to check",
    )
    assert report.document()["counts"]["unchecked"] == 1


@pytest.mark.parametrize(("max_problems", "counted"), [(3, True), (2, False)])
def test_phrases_of_many_problems_are_nobodys_own(tmp_path, max_problems, counted):
    problems = [problem(PHRASE, problem_id=str(number)) for number in range(3)]
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PHRASE}])
    report = check(path, problems=problems, max_problems=max_problems)
    assert [one.contaminated for one in report.problems] == [counted] * 3
    why = () if counted else ("prompt: only phrases of more than 2 problems",)
    assert report.problems[0].unchecked == why


def test_a_phrase_of_one_problems_own_texts_counts(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PHRASE}])
    assert one(check(path, problems=[problem(PHRASE, *[PHRASE] * 5)], max_problems=2)).contaminated


def test_an_ngram_that_a_text_repeats_counts_once(tmp_path):
    again = "and so on " * 10
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": again}])
    found = one(check(path, problems=[problem(again)]))
    assert (found.prompt.ngrams, found.prompt.found, found.prompt.hit.share) == (3, 3, 1)


def test_a_hash_that_collides_is_no_hit(tmp_path, monkeypatch):
    """With a number for all words of a length, only the words themselves tell them apart."""
    monkeypatch.setattr(
        index, "_numbers", lambda text, starts, ends: (ends - starts).astype("uint64")
    )
    changed = PROMPT.translate(str.maketrans("aeiou", "eioua"))
    rows = [{"t": changed}, {"t": PROMPT}]
    found = one(check(write_jsonl(tmp_path / "c.jsonl", rows)))
    assert (found.prompt.hit.row, found.documents) == (2, 1)


LONG = "a" * 8 + "b" * 40 + "c" * 8


@pytest.mark.parametrize("other", [LONG.replace("bb", "xb", 1), LONG.replace("b", "bb", 1)])
def test_long_words_differ_in_their_middle(other):
    first, second = index.tokenize(f"{LONG} {other}".encode()).hashes.tolist()
    assert first != second


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.hex().encode()), max_size=20))
def test_tokens_are_the_words(words):
    text = b"  ".join(words)
    found = index.tokenize(text)
    spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    assert [text[start:end] for start, end in spans] == text.split()
    numbers = zip(text.split(), found.hashes.tolist(), strict=True)
    assert len(set(numbers)) == len(set(found.hashes.tolist())) == len(set(text.split()))


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
        assert found.prompt.ngrams == len(own)
        assert found.prompt.found == len(own & set().union(*held))
        assert found.documents == sum(bool(own & texts) for texts in held)
        shares = [len(own & texts) / len(own) if own else 0 for texts in held]
        if found.documents:
            assert found.prompt.hit.share == max(shares)
            assert found.prompt.hit.row == shares.index(max(shares)) + 1


def _grams(text):
    words = text.split()
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


def test_rows_may_be_any_json(tmp_path):
    rows = [PROMPT, [PROMPT], {"a": None, "b": [1, 2.5, True, {"c": [[PROMPT]]}]}, 5, None, {}]
    path = tmp_path / "c.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    found = one(check(path))
    assert found.documents == 3
    assert found.prompt.hit.row == 1
