"""Words and n-grams in any script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.tokens import ngram_hashes, word_hashes, words

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
