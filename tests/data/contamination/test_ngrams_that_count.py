"""Selection of indexed n-grams, and exact matches of their words."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.data.contamination import tokens
from services.data.contamination.code import pattern_hashes, tokenize_code, word_keys
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
    assert (found.statement.ngrams, found.statement.hit.share) == (1, 1)
    assert found.statement.hit.excerpt == "write a function to find the longest common prefix"
    assert not one(check(path, problems=[problem(NINE + " Again.")])).documents


EUCLID = "def greatest_common_divisor(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n"


@pytest.mark.parametrize(
    "code",
    [
        "def f(x, y):\n    return x + y\n",
        EUCLID.replace("greatest_common_divisor", "gcd"),
        "def first(xs):\n    return xs[0]\n",
    ],
)
def test_what_is_in_any_code_base_contaminates_nothing(tmp_path, code):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"import os\n\n\n{code}"}])
    add = "def add(a, b):\n    return a + b\n"
    assert not one(check(path, problems=[problem(PROMPT, add, EUCLID)])).contaminated


def test_an_idiom_with_the_solutions_names_contaminates(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"import os\n\n\n{EUCLID}\n\nx = 1"}])
    found = one(check(path, problems=[problem(PROMPT, EUCLID)]))
    assert found.solutions.contaminated
    assert not found.statement.contaminated


def test_another_program_with_the_same_beginning_is_not_it(tmp_path):
    code = "def count_list(input_list):\n    return len(input_list)"
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"{code} ** 2\n"}])
    assert not one(check(path, problems=[problem(PROMPT, code)])).contaminated


def test_what_is_too_short_is_named(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": "Sort it."}])
    report = check(path, problems=[problem("Sort it.", "x = 1"), LEAKED])
    assert one(report, "leaked").unchecked == (
        "statement: 2 words, fewer than 7 are too short to check",
        "solution 1: 3 words, fewer than 7 are too short to check",
    )
    assert report.document()["counts"]["unchecked"] == 1


@pytest.mark.parametrize(("max_problems", "counted"), [(3, True), (2, False)])
def test_phrases_of_many_problems_are_nobodys_own(tmp_path, max_problems, counted):
    problems = [problem(PHRASE, problem_id=str(number)) for number in range(3)]
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PHRASE}])
    report = check(path, problems=problems, max_problems=max_problems)
    assert [one.contaminated for one in report.problems] == [counted] * 3
    why = () if counted else ("statement: only phrases of more than 2 problems",)
    assert report.problems[0].unchecked == why


def test_a_phrase_of_one_problems_own_texts_counts(tmp_path):
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": PHRASE}])
    assert one(check(path, problems=[problem(PHRASE, *[PHRASE] * 5)], max_problems=2)).contaminated


def test_an_ngram_that_a_text_repeats_counts_once(tmp_path):
    again = "and so on " * 10
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": again}])
    found = one(check(path, problems=[problem(again)]))
    assert (found.statement.ngrams, found.statement.found, found.statement.hit.share) == (3, 3, 1)


def test_a_hash_that_collides_is_no_hit(tmp_path, monkeypatch):
    """With a number for all words of a length, only the words themselves tell them apart."""
    monkeypatch.setattr(
        tokens, "hash_words", lambda text, starts, ends: (ends - starts).astype("uint64")
    )
    changed = PROMPT.translate(str.maketrans("aeiou", "eioua"))
    rows = [{"t": changed}, {"t": PROMPT}]
    found = one(check(write_jsonl(tmp_path / "c.jsonl", rows)))
    assert (found.statement.hit.row, found.documents) == (2, 1)


LONG = "a" * 8 + "b" * 40 + "c" * 8


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=40, max_size=40),
    st.permutations("abcd"),
    st.lists(st.sampled_from(["a", "b", "x"]), max_size=5),
)
def test_a_pattern_depends_on_no_names_and_not_on_what_is_before_it(names, others, before):
    signs = ["= ", "+ ", "[0] ", "\n"]
    code = "".join(name + signs[at % 4] for at, name in enumerate(names))
    renamed = code.translate(str.maketrans("abcd", "".join(f"{one}" for one in others)))
    own, other = (tokenize_code(text.encode()) for text in (code, f"{' '.join(before)}\n{renamed}"))
    shift = len(other.hashes) - len(own.hashes)
    for length in (7, 12, 30):
        at = np.arange(len(own.hashes) - length)
        wanted, found = pattern_hashes(own, at, length), pattern_hashes(other, at + shift, length)
        assert wanted.tolist() == found.tolist()
    assert word_keys(own).tolist() == word_keys(other)[shift:].tolist()


@pytest.mark.parametrize("other", [LONG.replace("bb", "xb", 1), LONG.replace("b", "bb", 1)])
def test_long_words_differ_in_their_middle(other):
    first, second = tokens.tokenize(f"{LONG} {other}".encode()).hashes.tolist()
    assert first != second


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.hex().encode()), max_size=20))
def test_tokens_are_the_words(words):
    text = b"  ".join(words)
    found = tokens.tokenize(text)
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
        assert found.statement.ngrams == len(own)
        assert found.statement.found == len(own & set().union(*held))
        assert found.documents == sum(bool(own & texts) for texts in held)
        shares = [len(own & texts) / len(own) if own else 0 for texts in held]
        if found.documents:
            assert found.statement.hit.share == max(shares)
            assert found.statement.hit.row == shares.index(max(shares)) + 1


def _grams(text):
    words = text.split()
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


def test_rows_may_be_any_json(tmp_path):
    rows = [PROMPT, [PROMPT], {"a": None, "b": [1, 2.5, True, {"c": [[PROMPT]]}]}, 5, None, {}]
    path = tmp_path / "c.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    found = one(check(path))
    assert found.documents == 3
    assert found.statement.hit.row == 1


FORMS = {
    "if a:\n b = 2.50\nelse:\n if c:\n  d = e[f::]\n": "if a:\n b = 2.5\nelif c:\n d = e[f:]\n",
    "a = '' . join(b)": "a = ''.join(b)",
    "a = 1.00": "a = 1.",
}


@pytest.mark.parametrize("written", FORMS)
def test_two_forms_of_one_program_have_the_same_tokens(written):
    own, other = (tokenize_code(text.encode()) for text in (written, FORMS[written]))
    assert own.hashes.tolist() == other.hashes.tolist()
    assert own.names.tolist() == other.names.tolist()


def test_different_decimals_are_different_tokens():
    own, other = (tokenize_code(text).hashes.tolist() for text in (b"a = 2.05", b"a = 2.50"))
    assert own != other


SHORT = 'def add(x: int, y: int):\n    """Add two numbers x and y\n    >>> add(2, 3)\n    5\n'
OTHER_NAMES = SHORT.replace("add(", "total_of(").replace("x", "first").replace("y", "last")


def test_a_short_statement_is_found_with_other_names_but_not_with_other_words(tmp_path):
    problems = [problem(f'{SHORT}    >>> add(5, 7)\n    12\n    """')]
    for number, changed in ((12, True), (13, False)):
        text = f"an example\n{OTHER_NAMES}    >>> total_of(5, 7)\n    {number}\n\nand so on"
        path = write_jsonl(tmp_path / f"{number}.jsonl", [{"t": text}])
        assert one(check(path, problems=problems)).statement.contaminated is changed


def test_a_short_statement_is_found_where_punctuation_was_deleted(tmp_path):
    statement = "Count alphabets,digits and special characters in a given string; don't sort them."
    for copy, found in (
        ("count alphabetsdigits and special characters in a given string dont sort them", True),
        ("count alphabetsdigits and special characters in a given string dont print them", False),
    ):
        path = write_jsonl(tmp_path / "c.jsonl", [{"t": f"an example\n{copy}\nand so on"}])
        report = one(check(path, problems=[problem(statement)]))
        assert report.statement.contaminated is found


def test_a_program_that_is_only_known_by_its_names_is_listed(tmp_path):
    program = "def length_of_harbour_wall(stones):\n    return len(stones)"
    path = write_jsonl(tmp_path / "c.jsonl", [{"t": program.replace("stones", "x")}])
    found = one(check(path, problems=[problem(PHRASE, program)]))
    assert found.unchecked == ("solution 1: 7 words, only searched for with its own names",)
    assert not found.contaminated
