"""Finds the n-grams of an index in a folded text."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from services.data.contamination.index import Index, Lookup, Numbers
from services.data.contamination.tokens import Tokens, tokenize
from services.data.text.ngrams import Hashes, extend_ngrams, ngram_hashes

# A word that no text has: `fold` makes a blank of this character. Between two texts it keeps
# n-grams from reaching from one into the other.
SEPARATOR = b" \0 "
# Bytes; a batch of documents that is not unusually large takes one.
_WINDOW = 1 << 19
_CACHED = 1 << 15


class Matcher:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._words = lru_cache(_CACHED)(index.words)
        self._overlap = max((lookup.length for lookup in index.lookups), default=0) - 1

    def find(self, folded: bytes) -> Iterator[tuple[int, int]]:
        """Yield (offset in the text, number of the n-gram) for what is there, word for word.

        The text is looked at in windows, for memory; those overlap by an n-gram less a word. An
        n-gram shorter than the others may so be found twice.
        """
        start = end = 0
        while end < len(folded) and self._index.lookups:
            end = _window_end(folded, end + _WINDOW)
            window = folded[start:end]
            tokens = tokenize(window)
            for offset, ngram in self._find(window, tokens):
                yield start + offset, ngram
            if len(tokens.starts) >= self._overlap:
                start += int(tokens.starts[-self._overlap])

    def _find(self, window: bytes, tokens: Tokens) -> Iterator[tuple[int, int]]:
        sieve = self._index.sieve
        beginnings = ngram_hashes(tokens.hashes, sieve.length)
        at = sieve.candidates(beginnings)
        hashes, length = beginnings[at], sieve.length
        for lookup in self._index.lookups:
            while length < lookup.length:
                kept = at + length < len(tokens.hashes)
                at, hashes = at[kept], hashes[kept]
                hashes = extend_ngrams(hashes, tokens.hashes[at + length])
                length += 1
            yield from self._confirmed(window, tokens, lookup, *_known(lookup, at, hashes))

    def _confirmed(
        self, window: bytes, tokens: Tokens, lookup: Lookup, at: Numbers, ngrams: Numbers
    ) -> Iterator[tuple[int, int]]:
        starts = tokens.starts[at].tolist()
        ends = tokens.ends[at + lookup.length - 1].tolist()
        for start, end, ngram in zip(starts, ends, ngrams.tolist(), strict=True):
            if window[start:end].split() == self._words(ngram):
                yield start, ngram


def _known(lookup: Lookup, at: Numbers, hashes: Hashes) -> tuple[Numbers, Numbers]:
    """Those positions whose n-gram the index has, and its number."""
    places = np.searchsorted(lookup.hashes, hashes)
    places[places == len(lookup.hashes)] = 0
    known = lookup.hashes[places] == hashes
    return at[known], places[known] + lookup.first


def _window_end(folded: bytes, end: int) -> int:
    """The first blank at or after ``end``."""
    found = folded.find(b" ", end)
    return len(folded) if found < 0 else found
