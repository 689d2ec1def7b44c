"""N-gram index of evaluation problems, for the search in a corpus."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from services.data.ngrams import Hashes, ngram_hashes, words

# Shorter texts match by chance.
MIN_WORDS = 8


@dataclass(frozen=True, slots=True)
class EvalProblem:
    """An evaluation problem and its known solutions."""

    dataset: str
    problem_id: str
    prompt: str
    solutions: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The texts by their names in reports, the prompt first."""
        solutions = {f"solution {at}": text for at, text in enumerate(self.solutions, start=1)}
        return {"prompt": self.prompt, **solutions}


@dataclass(frozen=True, slots=True)
class EvalText:
    """One text of a problem, split into words.

    ``problem`` counts from 0. ``length`` is the number of words per n-gram: a text shorter than the
    n-gram size is one n-gram of all its words, and 0 means too short to check.
    """

    problem: int
    part: str
    words: tuple[bytes, ...]
    length: int


def eval_texts(problems: Sequence[EvalProblem], size: int) -> list[EvalText]:
    texts = []
    interned: dict[bytes, bytes] = {}
    for number, problem in enumerate(problems):
        for part, text in problem.texts.items():
            found = tuple(interned.setdefault(word, word) for word in words(text))
            length = min(size, len(found)) if len(found) >= min_words(size) else 0
            texts.append(EvalText(number, part, found, length))
    return texts


def min_words(size: int) -> int:
    """Minimum words of a text that is searched for."""
    return min(MIN_WORDS, size)


Positions = npt.NDArray[np.intp]
_BLANK = 0x20
_FIRST, _LAST, _LENGTH, _LONG = (
    np.uint64(odd)
    for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)
_LOWEST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Start, end and hash of each word of a folded text.

    Arrays, because a Python object per word would dominate the cost.
    """

    starts: Positions
    ends: Positions
    hashes: Hashes


def tokenize(folded: bytes) -> Tokens:
    """Find and hash the words of a text that ``fold`` normalized.

    The hash covers a word's length, its first and last 8 bytes and, above 16 bytes, a checksum of
    the whole word. Different words may collide, so a match must be confirmed by the words.
    """
    # A leading blank, and enough trailing ones to read 8 bytes at each word's start.
    padded = b" " + folded + b" " * 8
    in_word = np.frombuffer(padded, np.uint8) != _BLANK
    edges = np.flatnonzero(in_word[1:] != in_word[:-1])
    starts, ends = edges[0::2], edges[1::2]
    return Tokens(starts, ends, _numbers(padded, starts + 1, ends + 1))


def _numbers(text: bytes, starts: Positions, ends: Positions) -> Hashes:
    eight: Hashes = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))
    lengths = ends - starts
    numbers: Hashes = eight[starts] & _LOWEST_BYTES[np.minimum(lengths, 8)]
    numbers *= _FIRST
    numbers += lengths.astype(np.uint64) * _LENGTH
    longer = np.flatnonzero(lengths > 8)
    numbers[longer] += eight[ends[longer] - 8] * _LAST
    longest = np.flatnonzero(lengths > 16)
    spans = zip(starts[longest].tolist(), ends[longest].tolist(), strict=True)
    sums = [zlib.crc32(text[start:end]) for start, end in spans]
    numbers[longest] += np.array(sums, dtype=np.uint64) * _LONG
    # Multiplication carries upwards only; this mixes high bits into low ones.
    numbers ^= numbers >> np.uint64(32)
    return numbers


Numbers = npt.NDArray[np.int64]
_SLOTS_PER_NGRAM = 64
_MIN_SLOT_BITS, _MAX_SLOT_BITS = 16, 26


@dataclass(frozen=True, slots=True)
class Lookup:
    """Sorted hashes of the n-grams of ``length`` words, numbered from ``first`` on."""

    length: int
    first: int
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class Postings:
    """Inverted index: the texts that have an n-gram, and the word index at which it begins.

    The entries of n-gram ``i`` are those from ``offsets[i]`` up to ``offsets[i + 1]``.
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
    """Prefilter: reports whether any n-gram can begin with a hash of ``length`` words.

    One lookup in this table, which fits into a cache, rejects most words of a corpus.
    """

    length: int
    shift: np.uint64
    slots: npt.NDArray[np.bool_]

    def candidates(self, hashes: Hashes) -> Numbers:
        return np.flatnonzero(self.slots[(hashes >> self.shift).view(np.int64)])


@dataclass(frozen=True, slots=True)
class Index:
    """Searchable n-grams. ``ngram_counts`` has the number of indexed n-grams for each text."""

    texts: tuple[EvalText, ...]
    ngram_counts: Numbers
    lookups: tuple[Lookup, ...]
    postings: Postings
    sieve: Sieve

    def words(self, ngram: int) -> list[bytes]:
        text = self.texts[self.postings.texts_of(ngram)[0]]
        start = self.postings.positions_of(ngram)[0]
        return list(text.words[start : start + text.length])


@dataclass(frozen=True, slots=True)
class _Rows:
    """N-grams of all texts, one per row; ``beginnings`` are hashes of their first words.

    Sorted by length, hash, text and position.
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
        """Number the distinct n-grams from 0."""
        return np.cumsum(_changes(self.lengths) | _changes(self.hashes)) - 1


def build_index(problems: Sequence[EvalProblem], size: int, max_problems: int) -> Index:
    """Build the index, without n-grams that are in more than ``max_problems`` problems."""
    texts = tuple(eval_texts(problems, size))
    shortest = min_words(size)
    rows = _select_rows(_all_rows(texts, shortest), texts, max_problems)
    ids = rows.ids()
    offsets = np.searchsorted(ids, np.arange(ids[-1] + 2 if len(ids) else 1))
    return Index(
        texts=texts,
        ngram_counts=np.bincount(rows.texts, minlength=len(texts)),
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


def _select_rows(rows: _Rows, texts: Sequence[EvalText], max_problems: int) -> _Rows:
    """Select the first occurrence in each text of every n-gram that is not too common."""
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
    bits = min(max(bits, _MIN_SLOT_BITS), _MAX_SLOT_BITS)
    shift = np.uint64(64 - bits)
    slots = np.zeros(1 << bits, dtype=np.bool_)
    slots[(beginnings >> shift).view(np.int64)] = True
    return Sieve(length, shift, slots)


def _changes(column: Numbers | Hashes) -> npt.NDArray[np.bool_]:
    """Mark the rows that differ from the row before; the first row always does."""
    return np.append(np.ones(min(1, len(column)), np.bool_), column[1:] != column[:-1])
