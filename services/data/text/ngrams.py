"""n-grams as 64-bit numbers, worked out for a whole text at once."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
_FACTOR = 0x9E3779B97F4A7C15


def word_hashes(words: Sequence[bytes]) -> Hashes:
    """A number for each word, the same in every process."""
    return np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words))


# Most words of a text are among the commonest ones.
@lru_cache(maxsize=1 << 16)
def _word_hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def ngram_hashes(hashes: Hashes, size: int) -> Hashes:
    """A number for each run of ``size`` words, in their order; empty where there are too few.

    It is a polynomial in the words' numbers, so runs are joined from halves: for 13 words that
    takes 5 multiplications rather than 12.
    """
    if len(hashes) < size:
        return np.empty(0, dtype=np.uint64)
    run, width = hashes, 1
    result, length = hashes[:0], 0
    while True:
        if size & width:
            result = _join(run, result, width, length) if length else run
            length += width
        if length == size:
            return result
        run, width = _join(run, run, width, width), width * 2


def _join(first: Hashes, second: Hashes, width: int, length: int) -> Hashes:
    """Join each n-gram of ``width`` words with that of ``length`` words right behind it."""
    count = len(second) - width
    return first[:count] * _power(length) + second[width:]


def extend_ngrams(ngrams: Hashes, following: Hashes) -> Hashes:
    """Make each n-gram longer by the word that follows it."""
    return ngrams * _power(1) + following


def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(_FACTOR, exponent, 1 << 64))
