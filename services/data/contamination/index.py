"""The n-grams of evaluation problems, to be found in a corpus."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from services.data.contamination.problems import EvalProblem, EvalText, eval_texts, shortest_length
from services.data.contamination.tokens import tokenize
from services.data.text.ngrams import Hashes, ngram_hashes

Numbers = npt.NDArray[np.int64]
_SLOTS_PER_NGRAM = 64
_FEWEST_SLOT_BITS, _MOST_SLOT_BITS = 16, 26


@dataclass(frozen=True, slots=True)
class Lookup:
    """Sorted hashes of the n-grams of ``length`` words; the first one's number is ``first``."""

    length: int
    first: int
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class Postings:
    """Which texts hold an n-gram, and at which of their words it begins.

    Those of n-gram ``i`` are the entries from ``offsets[i]`` up to ``offsets[i + 1]``.
    """

    offsets: Numbers
    texts: Numbers
    positions: Numbers

    def texts_of(self, ngram: int) -> list[int]:
        return list(self.texts[self._entries(ngram)].tolist())

    def positions_of(self, ngram: int) -> list[int]:
        return list(self.positions[self._entries(ngram)].tolist())

    def _entries(self, ngram: int) -> slice:
        return slice(self.offsets[ngram], self.offsets[ngram + 1])


@dataclass(frozen=True, slots=True)
class Sieve:
    """Says of a hash of ``length`` words whether an n-gram may begin with it.

    Most words of a corpus are done with after one look into this table, which fits into a cache.
    """

    length: int
    shift: np.uint64
    slots: npt.NDArray[np.bool_]

    def candidates(self, hashes: Hashes) -> Numbers:
        return np.flatnonzero(self.slots[(hashes >> self.shift).view(np.int64)])


@dataclass(frozen=True, slots=True)
class Index:
    """``own`` is the number of n-grams that count, for each text."""

    texts: tuple[EvalText, ...]
    own: Numbers
    lookups: tuple[Lookup, ...]
    postings: Postings
    sieve: Sieve

    def words(self, ngram: int) -> list[bytes]:
        text = self.texts[self.postings.texts_of(ngram)[0]]
        start = self.postings.positions_of(ngram)[0]
        return list(text.words[start : start + text.length])


@dataclass(frozen=True, slots=True)
class _Rows:
    """n-grams of all texts, a row each; ``beginnings`` are hashes of their first words.

    They are sorted by length, hash, text and position.
    """

    lengths: Numbers
    hashes: Hashes
    texts: Numbers
    positions: Numbers
    beginnings: Hashes

    def take(self, rows: Numbers) -> "_Rows":
        return _Rows(
            self.lengths[rows],
            self.hashes[rows],
            self.texts[rows],
            self.positions[rows],
            self.beginnings[rows],
        )

    def ids(self) -> Numbers:
        """The same number for equal n-grams, from 0."""
        return np.cumsum(_changes(self.lengths) | _changes(self.hashes)) - 1


def build_index(problems: Sequence[EvalProblem], size: int, max_problems: int) -> Index:
    """Number the n-grams, leaving out those in more than ``max_problems`` problems."""
    texts = tuple(eval_texts(problems, size))
    shortest = shortest_length(size)
    rows = _own_rows(_all_rows(texts, shortest), texts, max_problems)
    ids = rows.ids()
    offsets = np.searchsorted(ids, np.arange(ids[-1] + 2 if len(ids) else 1))
    return Index(
        texts=texts,
        own=np.bincount(rows.texts, minlength=len(texts)),
        lookups=tuple(_lookups(rows.take(offsets[:-1]))),
        postings=Postings(offsets, rows.texts, rows.positions),
        sieve=_sieve(shortest, rows.beginnings),
    )


def _all_rows(texts: Sequence[EvalText], shortest: int) -> _Rows:
    hashes, beginnings = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for text in texts:
        words = tokenize(b" ".join(text.words)).hashes
        found = ngram_hashes(words, text.length) if text.length else words[:0]
        hashes.append(found)
        beginnings.append(ngram_hashes(words, shortest)[: len(found)])
    counts = [len(found) for found in hashes[1:]]
    rows = _Rows(
        lengths=np.repeat([text.length for text in texts], counts),
        hashes=np.concatenate(hashes),
        texts=np.repeat(np.arange(len(texts)), counts),
        positions=np.concatenate([np.arange(count) for count in counts]),
        beginnings=np.concatenate(beginnings),
    )
    return rows.take(np.lexsort((rows.positions, rows.texts, rows.hashes, rows.lengths)))


def _own_rows(rows: _Rows, texts: Sequence[EvalText], max_problems: int) -> _Rows:
    """The rows that count: each text's first of an n-gram, of those that are not too common."""
    ids = rows.ids()
    rows_of_problems = np.array([text.problem for text in texts])[rows.texts]
    problems = np.bincount(ids[_changes(ids) | _changes(rows_of_problems)])
    firsts = _changes(ids) | _changes(rows.texts)
    return rows.take(np.flatnonzero(firsts & (problems[ids] <= max_problems)))


def _lookups(distinct: _Rows) -> Iterator[Lookup]:
    lengths, firsts = np.unique(distinct.lengths, return_index=True)
    bounds = pairwise([*firsts.tolist(), len(distinct.lengths)])
    for length, (first, end) in zip(lengths.tolist(), bounds, strict=True):
        yield Lookup(length, first, distinct.hashes[first:end])


def _sieve(length: int, beginnings: Hashes) -> Sieve:
    bits = (len(beginnings) * _SLOTS_PER_NGRAM).bit_length()
    bits = min(max(bits, _FEWEST_SLOT_BITS), _MOST_SLOT_BITS)
    shift = np.uint64(64 - bits)
    slots = np.zeros(1 << bits, dtype=np.bool_)
    slots[(beginnings >> shift).view(np.int64)] = True
    return Sieve(length, shift, slots)


def _changes(column: Numbers | Hashes) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before; the first does."""
    return np.append(np.ones(min(1, len(column)), np.bool_), column[1:] != column[:-1])
