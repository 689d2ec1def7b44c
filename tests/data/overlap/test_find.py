"""Overlap detection, its shares against all pairs, and the allowlist."""

import re
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.data import overlap as overlap_module
from services.data.overlap import (
    Overlap,
    OverlapKind,
    common_shares,
    find_overlaps,
    load_allowlist,
    review,
)
from shared.errors import DataError
from tests.data.overlap.support import demo_problems, problem, program

STATEMENT = (
    "The gardener wants to plant tulips along both sides of the avenue so that no two "
    "neighbouring beds share a colour. Every colour costs a different price, and the town council "
    "refuses to pay more than necessary. Determine the least amount of money that suffices."
)
CODE = """\
def cheapest(beds, prices):
    best = {}
    for bed, price in zip(beds, prices):
        before = best.get(bed - 1, 0)
        best[bed] = min(before + price, best.get(bed, before + price))
    return max(best.values(), default=0)
"""


def kinds(*problems):
    return [tuple(overlap.findings) for overlap in find_overlaps(problems)]


def test_an_exact_copy_has_every_kind_of_prompts():
    a, b = problem("a", "1", STATEMENT), problem("b", "1", STATEMENT)
    (overlap,) = find_overlaps([b, a])
    expected = (OverlapKind.EXACT, OverlapKind.NEAR, OverlapKind.PROMPT_NGRAMS)
    assert overlap.findings == dict.fromkeys(expected, 1)
    assert (overlap.a.dataset, overlap.b.dataset) == ("a", "b")


def test_a_statement_within_a_longer_one_shares_its_ngrams():
    other = " ".join(one.statement for one in demo_problems()[:3])
    (overlap,) = find_overlaps(
        [problem("a", "1", STATEMENT), problem("b", "1", f"{other}\n\n{STATEMENT}")]
    )
    assert overlap.findings == {OverlapKind.PROMPT_NGRAMS: 1}


def test_common_phrases_are_nobodys_own():
    phrase = " ".join(f"boiler{n}plate" for n in range(60))
    several = [
        problem("a", str(n), f"{phrase} {' '.join(f'own{n}x{k}' for k in range(50))}")
        for n in range(12)
    ]
    assert kinds(*several) == []
    assert kinds(*several[:10]) == [(OverlapKind.PROMPT_NGRAMS,)] * 45


def test_a_solution_with_other_names_and_a_wrapper_is_found():
    wrapped = (
        CODE.replace("beds", "xs").replace("prices", "c").replace("best", "d").replace("\n", "\r\n")
        + "\r\nprint(cheapest(list(map(int, input().split())), [1] * 9))\r\n"
    )
    a, b = problem("a", "1", "One thing", CODE), problem("b", "1", "Another matter", "x", wrapped)
    (overlap,) = find_overlaps([a, b])
    assert overlap.findings == {OverlapKind.SOLUTION_NGRAMS: 1}
    assert "best" in overlap.excerpts[0]


def test_solutions_of_one_problem_do_not_overlap_with_each_other():
    twice = problem("a", "1", "One thing", CODE, CODE)
    assert kinds(twice) == []
    assert kinds(twice, problem("b", "1", "Another", CODE)) == [(OverlapKind.SOLUTION_NGRAMS,)]


def test_short_prompts_are_found_by_their_words_alone():
    copies = [problem("a", "1", "Sort a list."), problem("b", "1", "sort  a list")]
    assert kinds(*copies, problem("b", "2", "Reverse a list.")) == [(OverlapKind.NEAR,)]


def test_excerpts_are_one_line_around_what_is_alike():
    filler = "\n".join(f"nothing{n} of interest{n}" for n in range(80))
    one = problem("a", "1", f"{STATEMENT}\n{'more' * 500}")
    (overlap,) = find_overlaps([one, problem("b", "1", f"{filler}\n\n{STATEMENT}")])
    for excerpt in overlap.excerpts:
        assert "wants to plant tulips" in excerpt
        assert len(excerpt.splitlines()) == 1
        assert len(excerpt) <= 160


def test_more_pairs_than_anybody_can_look_at_are_refused(monkeypatch):
    monkeypatch.setattr(overlap_module, "MAX_PAIRS", 100)
    exact = [problem("a", str(n), STATEMENT) for n in range(20)]
    near = [problem("a", str(n), f"{STATEMENT} {n}") for n in range(20)]
    empty = [problem("a", str(n), "") for n in range(20)]
    for copies in (exact, near, empty):
        with pytest.raises(DataError, match="more than 100 pairs") as caught:
            find_overlaps(copies)
        assert len(str(caught.value).splitlines()) == 1


def test_the_order_of_the_texts_does_not_matter():
    problems = demo_problems()
    problems += [
        replace(one, dataset="copies", statement=f" {one.statement}") for one in problems[::3]
    ]
    expected = find_overlaps(problems)
    assert len(expected) == 20
    Random(2).shuffle(problems)
    assert find_overlaps(problems) == expected
    names = [(one.a.dataset, one.a.problem_id, one.b.dataset) for one in expected]
    assert all(before <= after for before, after in pairwise(names))


texts = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from([*STATEMENT.split(), "def f(x):", "\n", "≤", "输入", "1"])).map(
        " ".join
    ),
)


@settings(max_examples=30)
@given(texts, texts)
def test_overlaps_are_symmetric(one, other):
    a, b = problem("a", "1", one), problem("b", "1", other)
    turned = problem("a", "1", other), problem("b", "1", one)
    (found, back) = find_overlaps([a, b]), find_overlaps(turned)
    assert [overlap.findings for overlap in found] == [overlap.findings for overlap in back]


@settings(max_examples=30)
@given(texts, st.sampled_from(["    ", "\t", "  "]), st.sampled_from(["\n", "\r\n", "\r"]))
def test_layout_hides_no_copy(text, margin, line_end):
    # A margin makes code of a line, and code keeps blanks that are no spaces.
    text = re.sub(r"[^\S\n]", " ", text)
    copy = line_end.join(margin + line for line in text.split("\n"))
    (kind,) = kinds(problem("a", "1", text), problem("b", "1", copy))
    assert {OverlapKind.EXACT, OverlapKind.NEAR} & set(kind)


HOSTILE = {
    "empty": "",
    "blank": " \n\t\n",
    "one letter": "x",
    "one sign": "?",
    "signs": "+-*/ !!! ((( ]]] ``` >>> \\ \x00",
    "a long line": "lorem ipsum " * 9_000,
    "a long word": "x" * 100_000,
    "escaped quotes": "'" + "\\'" * 20_000,
    "quotes": "\"'" * 20_000,
    "fences": "```\n" * 10_000,
    "a fence and blanks": "```" + " " * 100_000,
    "half a surrogate pair": "def f(x):\n    return '\ud800' + \udfff x",
    "NUL": "def f(x):\n    return '\x00'",
    "deep brackets": "assert " + "(" * 20_000,
    "deep operators": "def f(x):\n    return " + "-" * 20_000 + "x",
    "deep attributes": "def f(x):\n    return x" + ".y" * 20_000,
    "deep sums": "def f(x):\n    return x" + " + x" * 20_000,
    "deep blocks": "".join(" " * n + "if x:\n" for n in range(150)) + "def f(",
    "a bad escape": "def f(x):\n    '\\d'",
    "an unfinished string": 'def f(x):\n    """ to be continued',
    "no grammar": "def def lambda: ))) class",
}


def test_hostile_texts_are_compared_like_others():
    for name, text in HOSTILE.items():
        print(name)  # names the text after a timeout
        copies = [problem("a", "1", text, text), problem("b", "1", text, text, "")]
        overlaps = find_overlaps([*copies, problem("b", "2", STATEMENT, CODE)])
        assert len(overlaps) == 1, name
        assert OverlapKind.EXACT in overlaps[0].findings, name
        for excerpt in overlaps[0].excerpts:
            assert len(excerpt) <= 160, name
            excerpt.encode("utf-8")


@pytest.mark.parametrize("number", [150, pytest.param(2000, marks=pytest.mark.nightly)])
def test_unrelated_problems_do_not_overlap(number):
    random = Random(4)
    words = [f"w{n}" for n in range(5000)]
    prompts = [" ".join(random.choices(words, k=250)) for _ in range(number)]
    problems = [problem("train", str(n), one, program(random)) for n, one in enumerate(prompts)]
    assert find_overlaps(problems) == []


def shares(texts, problems, max_problems=10, min_share=0.01):
    ngrams = [np.array(sorted(text), dtype=np.uint64) for text in texts]
    return common_shares(ngrams, np.array(problems, dtype=np.int64), max_problems, min_share)


def by_comparing(texts, problems, max_problems, min_share):
    """All pairs, one by one."""
    found = {}
    for left, one in enumerate(texts):
        for right, other in enumerate(texts[:left]):
            common = {
                ngram
                for ngram in one & other
                if len({p for text, p in zip(texts, problems, strict=True) if ngram in text})
                <= max_problems
            }
            pair = problems[right], problems[left]
            share = len(common) / max(1, min(len(one), len(other)))
            if pair[0] != pair[1] and share >= min_share:
                found[pair] = max(share, found.get(pair, 0))
    return found


texts_of_problems = st.lists(
    st.lists(st.sets(st.integers(0, 12), max_size=8), max_size=3), max_size=6
)


@given(texts_of_problems, st.integers(2, 5), st.sampled_from([0.1, 0.5, 1]))
def test_the_index_finds_what_comparing_all_pairs_finds(problems, max_problems, min_share):
    texts = [text for solutions in problems for text in solutions]
    owners = [number for number, solutions in enumerate(problems) for _ in solutions]
    expected = by_comparing(texts, owners, max_problems, min_share)
    assert shares(texts, owners, max_problems, min_share) == pytest.approx(expected)


YAML = """\
- a: humaneval/HumanEval/56
  b: humaneval/HumanEval/61
  reason: the same question about other brackets
- {b: "codecontests/1582_F1. Easy version", a: mbpp/mbpp_1, reason: " seen "}
"""


def overlap(a, b):
    sides = [problem(*name.split("/", 1), "") for name in (a, b)]
    return Overlap(*sides, {OverlapKind.NEAR: 0.9}, ("", ""))


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def failure(path):
    with pytest.raises(DataError) as caught:
        load_allowlist(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(path)
    return message.removeprefix(path)


def test_split(tmp_path):
    allowed = load_allowlist(written(tmp_path / "allow.yaml", YAML))
    known = overlap("humaneval/HumanEval/61", "humaneval/HumanEval/56")
    new = overlap("humaneval/HumanEval/56", "mbpp/mbpp_1")
    reviewed = review([new, known], allowed)
    assert reviewed.open == (new,)
    (accepted,) = reviewed.allowed
    assert accepted.pair == known.pair
    assert accepted.reviewed == "the same question about other brackets"
    assert reviewed.stale == tuple(allowed[1:])


ENTRY = "{a: x/1, b: y/1, reason: %s}"


def test_a_bad_file_is_refused(tmp_path):
    for content, told in (
        ("a: x/1", "not a list"),
        ("- {a: [", "not YAML"),
        ("- !!python/object:os.system {}", "not YAML"),
        ("[" * 1500, "not YAML"),
        (b"- \xff\xfe\x00", "not YAML"),
        ("- just text", "entry 1: "),
        (f"- {ENTRY % 'fine'}\n- {{a: x/1, b: y/2}}", "entry 2: reason: "),
        (f"- {ENTRY % 'null'}", "entry 1: reason: "),
        (f"- {ENTRY % '5'}", "entry 1: reason: "),
        ("- {a: x/1, b: y/1, reason: '  '}", "entry 1: reason: "),
        ("- {a: x, b: y/1, reason: seen}", "entry 1: a: "),
        ("- {a: x/1, b: 'y/ ', reason: seen}", "entry 1: b: "),
        ("- {a: x/1, b: y/1, reason: seen, by: me}", "entry 1: by: "),
        (f"- {ENTRY % 'one'}\n- {{b: x/1, a: y/1, reason: two}}", "entry 2: the same pair"),
    ):
        assert told in failure(written(tmp_path / "allow.yaml", content)), content
