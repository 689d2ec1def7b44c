"""Word n-grams as 64-bit hashes, shared by all comparisons of texts."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_ASCII_LOWER_WORDS = bytes(
    code if chr(code).isalnum() or code >= 0x80 else 0x20
    for code in (ord(chr(value).lower()) if value < 0x80 else value for value in range(256))
)
# Kana and CJK ideographs have no blanks between words.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_BETWEEN = re.compile(r"[\W_]+")


def words(text: str) -> list[bytes]:
    """Split a text into words: runs of letters and digits, in lower case, as UTF-8.

    Punctuation, line ends, indentation and the ASCII underscore separate words, so layout and
    Markdown do not matter. In scripts without blanks each character is a word.
    """
    return fold(text).split()


def fold(text: str) -> bytes:
    """Normalize a text to lower-case UTF-8 words separated by blanks (case folding, NFKC)."""
    if not text.isascii():
        text = _BETWEEN.sub(" ", unicodedata.normalize("NFKC", text).casefold())
        text = _UNSPACED.sub(lambda match: f" {' '.join(match[0])} ", text)
    return text.encode("utf-8", "surrogatepass").translate(_ASCII_LOWER_WORDS)


Hashes = npt.NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def word_hashes(words: Sequence[bytes]) -> Hashes:
    """Hash each word; the hashes are the same in every process."""
    return np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words))


# Most words of a text are common, so the hit rate of the cache is high.
@lru_cache(maxsize=1 << 16)
def _word_hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def ngram_hashes(hashes: Hashes, size: int) -> Hashes:
    """Hash each run of ``size`` words, in order; empty if there are fewer words.

    The hash is a polynomial in the words' hashes.
    """
    count = max(0, len(hashes) - size + 1)
    result = np.zeros(count, np.uint64)
    for step in range(size):
        result *= _FACTOR
        result += hashes[step : step + count]
    return result
