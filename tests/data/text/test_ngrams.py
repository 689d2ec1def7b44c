import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.data.text.ngrams import extend_ngrams, ngram_hashes, word_hashes

WORDS = st.lists(st.sampled_from([b"a", b"b", b"c", b"return"]), max_size=40)
SIZES = st.integers(1, 20)


@given(WORDS, SIZES)
def test_numbers_are_equal_exactly_where_words_are(words, size):
    numbers = ngram_hashes(word_hashes(words), size).tolist()
    ngrams = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
    assert len(numbers) == len(ngrams)
    assert len(set(zip(numbers, ngrams, strict=True))) == len(set(ngrams)) == len(set(numbers))


@given(WORDS, SIZES)
def test_it_is_the_polynomial_in_the_words_numbers(words, size):
    factor = 0x9E3779B97F4A7C15
    hashes = word_hashes(words).tolist()
    expected = []
    for at in range(len(words) - size + 1):
        value = 0
        for number in hashes[at : at + size]:
            value = (value * factor + number) % 2**64
        expected.append(value)
    assert ngram_hashes(word_hashes(words), size).tolist() == expected


@given(WORDS, SIZES)
def test_extended_by_a_word_it_is_the_next_size(words, size):
    hashes = word_hashes(words)
    longer = extend_ngrams(ngram_hashes(hashes, size)[:-1], hashes[size:])
    assert np.array_equal(longer, ngram_hashes(hashes, size + 1))


def test_word_numbers_do_not_depend_on_the_process():
    assert word_hashes([b"return"]).tolist() == [166712603271491781]
