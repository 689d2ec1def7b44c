"""Tokens of code without names and layout; words and n-grams in any script."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.data.contamination.index import unescape
from services.data.tokens import ngram_hashes, plain_code, tokenize_code, word_hashes, words


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=40, max_size=40),
    st.permutations("abcd"),
    st.lists(st.sampled_from(["a", "b", "x"]), max_size=5),
)
def test_a_pattern_depends_on_no_names_and_not_on_what_is_before_it(names, others, before):
    signs = ["= ", "+ ", "[0] ", "\n"]
    code = "".join(name + signs[at % 4] for at, name in enumerate(names))
    renamed = code.translate(str.maketrans("abcd", "".join(others)))
    own, other = tokenize_code(code), tokenize_code(f"{' '.join(before)}\n{renamed}")
    shift = len(other.numbers) - len(own.numbers)
    for length in (7, 12, 30):
        for at in range(len(own.numbers) - length):
            assert own.pattern(at, length) == other.pattern(at + shift, length)
    assert own.nameless.tolist() == other.nameless[shift:].tolist()


def test_two_forms_of_one_program_have_the_same_tokens():
    for written, other in {
        "if a:\n b = 2.50\nelse:\n if c:\n  d = e[f::]\n": "if a:\n b=2.5\nelif c:\n d = e[f:]\n",
        "a = '' . join(b)": 'a = "".join(b)',
        "a = 1.00": "a = 1.",
        "def f(self, a: list[int], b: 'X' = {}) -> int: # it\n return self.g(a)": (
            "def f(a, b={}):\n  '''Says what it does.'''\n  return g(a)"
        ),
        ">>> x = f'{a}'\n": "import os\nx = '{a}'",
        ">>> for a in b:\n...     c(a)\n...\n>>> d": "for a in b:\n c(a)\nd",
    }.items():
        own, same = (tokenize_code(plain_code(text)) for text in (written, other))
        assert own.numbers.tolist() == same.numbers.tolist(), written


def test_what_code_does_matters():
    one = "def total(xs):\n s = 2.05\n for x in xs: s += x.weight * len(xs)\n return d['k']\n"
    for old, new in (
        ("2.05", "2.50"), ("+=", "-="), ("weight", "height"), ("len", "max"), ("s +=", "x +="),
        ("'k'", "'j'"),
    ):  # fmt: skip
        own, other = (tokenize_code(code) for code in (one, one.replace(old, new)))
        length = len(own.numbers)
        assert own.pattern(0, length) != other.pattern(0, length), new


HOSTILE = {
    "a colon and many lines": ":" + "\n" * 200_000,
    "a quote and a long word": '"' + "a" * 500_000,
    "quotes": "\"'" * 200_000,
    "open docstrings": ':\n    """' * 20_000 + "x",
    "brackets": "def f(" + "a: b[" * 50_000,
    "parentheses": "def f(" * 50_000 + "()" * 50_000,
    "prompts": "\n" + ">" * 200_000,
    "blanks": "else" + " " * 200_000 + "from" + " " * 200_000 + "1." + " " * 200_000,
    "a long line": "x = 1; " * 100_000,
    "backslashes": "\\" * 300_000 + "u12",
    "comments": "#include <a>" + "/*" * 100_000,
    "half a surrogate pair": "x = '\ud800'",
}


def test_hostile_texts_have_tokens_as_others():
    for name, text in HOSTILE.items():
        print(name)  # names the text after a timeout
        tokens = tokenize_code(plain_code(unescape(text)))
        assert len(tokens.numbers) == len(tokens.ends), name


CODE = "def add_one(x):\n    return x + 1\n"
# Letters that combine, expand, fold or stand alone, among what surrounds them.
CHARACTERS = st.one_of(
    st.sampled_from("aeE1 _-.\n\t`*"),
    st.sampled_from("éß\u0301\u0308\u2019\u00a0\u3000中文カ\u3099Ａﬁς\u1100\u1161\u11a8가\ud800"),
    st.characters(),
)
TEXTS = st.text(CHARACTERS, max_size=20)


def test_words():
    assert words(CODE) == [b"def", b"add", b"one", b"x", b"return", b"x", b"1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("naïve", ["naïve"]),
        ("nai\u0308ve", ["naïve"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("it’s", ["it", "s"]),
        ("返回最大值", ["返", "回", "最", "大", "值"]),
        ("верни сумму, затем 5", ["верни", "сумму", "затем", "5"]),
        ("ﬁx ｘ²", ["fix", "x2"]),
        ("🙂a🙂", ["a"]),
        ("exam\u00adp\u200ble\ufeff", ["example"]),
        ("", []),
    ],
)
def test_beyond_ascii(text, expected):
    assert words(text) == [word.encode() for word in expected]


@given(st.lists(TEXTS, max_size=5))
def test_lines_stand_for_themselves(lines):
    assert words("\n".join(lines)) == [word for line in lines for word in words(line)]


WORDS = st.lists(st.sampled_from([b"a", b"b", b"c", b"return"]), max_size=40)
SIZES = st.integers(1, 20)


@given(WORDS, SIZES)
def test_numbers_are_equal_exactly_where_words_are(words, size):
    numbers = ngram_hashes(word_hashes(words), size).tolist()
    ngrams = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
    assert len(numbers) == len(ngrams)
    assert len(set(zip(numbers, ngrams, strict=True))) == len(set(ngrams)) == len(set(numbers))
