"""N-gram index of evaluation problems, for the search in a corpus."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from services.data.contamination.texts import token_bits, unescape, word_bits, words_of
from services.data.names import own_names
from services.data.ngrams import Hashes, ngram_hashes, word_hashes
from services.data.records import ProblemText
from services.data.tokens import CodeTokens, plain_code, tokenize_code

# A statement that is shorter than an n-gram is one n-gram if it has so many words and bits.
MIN_WORDS, MIN_BITS = 7, 28.0
# Phrases of four words are common: a statement needs many of them, and a copy has nearly all.
PHRASE, _MIN_PHRASES, _MIN_PHRASES_BITS = 4, 4, 40.0
# Tokens per n-gram of code, its least bits, and those of a program without and with its headers.
PATTERN, _MIN_PATTERN_BITS, _MIN_BODY_BITS, _MIN_CODE_BITS = 12, 9.0, 40.0, 17.0
# Tokens of a program that is searched for with its own names.
_SHORTEST, _LONGEST = 7, 40
# Programs that are in any large code base.
_IDIOMS = (
    "def gcd(a, b):\n while b:\n  a, b = b, a % b\n return a",
    "def unique(xs):\n ys = []\n for x in xs:\n  if x not in ys:\n   ys.append(x)\n return ys",
    "def merged(a, b):\n c = a.copy()\n c.update(b)\n return c",
    "def length(xs):\n n = 0\n for x in xs:\n  n += 1\n return n",
    "def product(xs):\n p = 1\n for x in xs:\n  p *= x\n return p",
)


class Part(StrEnum):
    """The parts of a problem, which are judged separately."""

    STATEMENT = "statement"
    SOLUTIONS = "solutions"


class View(StrEnum):
    """Form of a text that is compared."""

    WORDS = "words"
    PHRASES = "phrases"
    """Runs of four words without the names that the statement's code defines."""
    PATTERNS = "patterns"
    """Runs of tokens of a program without its names."""
    PROGRAM = "program"
    """All tokens of a short program with its names."""


@dataclass(frozen=True, slots=True)
class EvalText:
    """A text of a problem in one view.

    ``problem`` counts from 0; ``name`` is that in reports. ``keys`` are the n-grams in the order of
    the text, ``beginnings`` hashes of their first items, ``starts`` the words at which they begin.
    Without n-grams the text is not specific enough to check.
    """

    problem: int
    part: Part
    name: str
    view: View
    words: tuple[str, ...]
    length: int = 0
    starts: tuple[int, ...] = ()
    keys: tuple[bytes, ...] = ()
    beginnings: tuple[int, ...] = ()

    @property
    def span(self) -> int:
        """Words within which n-grams count together: other text may be between those of a copy."""
        return 4 * len(self.words) + 50


def sieve_length(view: View, size: int) -> int:
    """Words or tokens by which n-grams of a view are found."""
    lengths = {View.WORDS: min(MIN_WORDS, size), View.PHRASES: PHRASE, View.PATTERNS: PATTERN}
    return lengths.get(view, _SHORTEST)


def eval_texts(number: int, problem: ProblemText, size: int) -> Iterator[EvalText]:
    """Yield the texts of a problem; n-grams of words have ``size`` words."""
    statement = unescape(problem.statement)
    yield _statement(number, words_of(statement), size)
    if names := own_names(statement):
        yield _phrases(number, words_of(statement), names, size)
    shown = {pattern for text in (statement, *_IDIOMS) for pattern in _patterns(text)}
    for at, code in enumerate(problem.solutions, start=1):
        yield from _program(number, f"solution {at}", code, shown, size)


def _statement(number: int, words: list[bytes], size: int) -> EvalText:
    length = min(size, len(words))
    specific = len(words) >= size or word_bits(words) >= MIN_BITS
    starts = (
        range(len(words) - length + 1) if len(words) >= min(MIN_WORDS, size) and specific else ()
    )
    return _of_words(number, View.WORDS, words, length, starts, size)


def _phrases(number: int, words: list[bytes], names: frozenset[str], size: int) -> EvalText:
    """Select the phrases of a statement that do not change when its code is renamed."""
    own = {word for name in names for word in words_of(name)}
    starts = [
        at for at in range(len(words) - PHRASE + 1) if own.isdisjoint(words[at : at + PHRASE])
    ]
    bits = word_bits([word for word in words if word not in own])
    if len(starts) < _MIN_PHRASES or bits < _MIN_PHRASES_BITS:
        starts = []
    return _of_words(number, View.PHRASES, words, PHRASE, starts, size)


def _of_words(
    number: int, view: View, words: list[bytes], length: int, starts: Sequence[int], size: int
) -> EvalText:
    hashes = word_hashes(words)
    texts = tuple(word.decode("utf-8", "surrogatepass") for word in words)
    keys = tuple(hashes[at : at + length].tobytes() for at in starts)
    first = _beginnings(hashes, starts, sieve_length(view, size))
    part = Part.STATEMENT
    return EvalText(number, part, part, view, texts, length, tuple(starts), keys, first)


def _beginnings(items: Hashes, starts: Sequence[int], length: int) -> tuple[int, ...]:
    hashes = ngram_hashes(items, length)
    return tuple(int(hashes[at]) for at in starts)


def _patterns(text: str) -> Iterator[bytes]:
    tokens = tokenize_code(plain_code(text))
    return (tokens.pattern(at, PATTERN) for at in range(len(tokens.numbers) - PATTERN + 1))


def _program(number: int, name: str, code: str, shown: set[bytes], size: int) -> Iterator[EvalText]:
    """Yield the patterns of a program, or one that says little with its names."""
    tokens = tokenize_code(plain_code(unescape(code)), words=True)
    patterns = {
        at: pattern
        for at in range(len(tokens.words) - PATTERN + 1)
        if (pattern := tokens.pattern(at, PATTERN)) not in shown
        and token_bits(tokens.words[at : at + PATTERN]) >= _MIN_PATTERN_BITS
    }
    # A copy may lack the header, or have another one; but a body that says little needs it.
    header = _headers(tokens.words)
    body = [at for at in patterns if header.isdisjoint(range(at, at + PATTERN))]
    for starts, least in ((body, _MIN_BODY_BITS), (list(patterns), _MIN_CODE_BITS)):
        covered = sorted({at + step for at in starts for step in range(PATTERN)})
        if token_bits([tokens.words[at] for at in covered]) >= least:
            first = _beginnings(tokens.nameless, starts, PATTERN)
            keys = tuple(patterns[at] for at in starts)
            yield EvalText(
                number, Part.SOLUTIONS, name, View.PATTERNS, tokens.words, PATTERN, tuple(starts),
                keys, first,
            )  # fmt: skip
            return
    yield EvalText(number, Part.SOLUTIONS, name, View.PATTERNS, tokens.words)
    yield from _named_program(number, name, tokens, code)


def _headers(words: Sequence[str]) -> set[int]:
    """Find the tokens of the headers of functions and classes."""
    positions: set[int] = set()
    inside = False
    for at, word in enumerate(words):
        inside = inside or word in ("def", "class")
        if inside:
            positions.add(at)
        inside = inside and word != ":"
    return positions


def _named_program(number: int, name: str, tokens: CodeTokens, code: str) -> Iterator[EvalText]:
    length = len(tokens.words)
    if _SHORTEST <= length <= _LONGEST and word_bits(words_of(plain_code(code))) >= MIN_BITS:
        first = _beginnings(tokens.numbers, [0], _SHORTEST)
        keys = (tokens.numbers.tobytes(),)
        yield EvalText(
            number, Part.SOLUTIONS, name, View.PROGRAM, tokens.words, length, (0,), keys, first
        )


# Index

_SLOT_BITS = 20


@dataclass(frozen=True, slots=True)
class Sieve:
    """N-grams of one view, by length and key, with a filter by their first items."""

    view: View
    first: int
    slots: npt.NDArray[np.bool_]
    beginnings: Hashes
    ngrams: dict[int, dict[bytes, int]]

    def candidates(self, items: Hashes) -> list[int]:
        """Positions at which an n-gram may begin."""
        hashes = ngram_hashes(items, self.first)
        at = np.flatnonzero(self.slots[(hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)])
        places = np.searchsorted(self.beginnings, hashes[at])
        places[places == len(self.beginnings)] = 0
        return list(at[self.beginnings[places] == hashes[at]].tolist())


@dataclass(frozen=True, slots=True)
class Index:
    """Searchable n-grams; ``postings`` has the texts of each, ``counts`` the n-grams of each text.

    ``words`` has the numbers of all words of the problems.
    """

    texts: tuple[EvalText, ...]
    counts: tuple[int, ...]
    postings: tuple[tuple[int, ...], ...]
    sieves: tuple[Sieve, ...]
    words: dict[bytes, int]


def build_index(problems: Sequence[ProblemText], size: int, max_problems: int) -> Index:
    """Build the index, without n-grams that are in more than ``max_problems`` problems."""
    texts = tuple(
        text
        for number, problem in enumerate(problems)
        for text in eval_texts(number, problem, size)
    )
    holders: dict[tuple[View, int, bytes], dict[int, int]] = defaultdict(dict)
    for number, text in enumerate(texts):
        for key, beginning in zip(text.keys, text.beginnings, strict=True):
            holders[text.view, text.length, key][number] = beginning
    kept = {
        ngram: owners
        for ngram, owners in holders.items()
        if len({texts[number].problem for number in owners}) <= max_problems
    }
    counts = [0] * len(texts)
    for number in (number for owners in kept.values() for number in owners):
        counts[number] += 1
    own = (text for text in texts if text.view in (View.WORDS, View.PHRASES))
    words = sorted({word.encode("utf-8", "surrogatepass") for text in own for word in text.words})
    numbers = dict(zip(words, word_hashes(words).tolist(), strict=True))
    postings = tuple(tuple(owners) for owners in kept.values())
    return Index(texts, tuple(counts), postings, tuple(_sieves(kept, size)), numbers)


def _sieves(kept: dict[tuple[View, int, bytes], dict[int, int]], size: int) -> Iterator[Sieve]:
    for view in View:
        ngrams: dict[int, dict[bytes, int]] = defaultdict(dict)
        first: set[int] = set()
        for number, ((own, length, key), owners) in enumerate(kept.items()):
            if own is view:
                ngrams[length][key] = number
                first.update(owners.values())
        if first:
            beginnings = np.array(sorted(first), np.uint64)
            slots = np.zeros(1 << _SLOT_BITS, np.bool_)
            slots[(beginnings >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)] = True
            yield Sieve(view, sieve_length(view, size), slots, beginnings, dict(ngrams))
