"""N-gram index of evaluation problems, and the search of documents for its n-grams."""

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from services.data.contamination.corpus import Document
from services.data.records import ProblemText
from services.data.tokens import (
    BUILTINS,
    KEYWORDS,
    CodeTokens,
    Hashes,
    fold,
    is_name,
    ngram_hashes,
    own_names,
    plain_code,
    tokenize_code,
    word_hashes,
)

# A statement that is shorter than an n-gram is one n-gram if it has so many words and bits.
MIN_WORDS, MIN_BITS = 7, 28.0
# Phrases of four words are common: a statement needs many of them, and a copy has nearly all.
PHRASE, _MIN_PHRASES, _MIN_PHRASES_BITS = 4, 4, 40.0
# Tokens per n-gram of code, its least bits, and those of a program without and with its headers.
PATTERN, _MIN_PATTERN_BITS, _MIN_BODY_BITS, _MIN_CODE_BITS = 12, 9.0, 40.0, 17.0
# Tokens of a program that is searched for with its own names.
_SHORTEST, _LONGEST = 7, 40
# Between two texts of a document; no problem has it as a word or token.
_SEAM = "\n\0\n"
_SLOT_BITS = 20
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

    ``problem`` counts from 0; ``name`` is that in reports. ``ngrams`` of ``length`` items have
    their key and the hash of their first items, by the word at which they begin. Without n-grams
    the text is not specific enough to check.
    """

    problem: int
    part: Part
    name: str
    view: View
    words: tuple[str, ...]
    length: int = 0
    ngrams: Mapping[int, tuple[bytes, int]] = field(default_factory=dict)

    @property
    def span(self) -> int:
        """Words within which n-grams count together: other text may be between those of a copy."""
        return 4 * len(self.words) + 50


def _sieve_length(view: View, size: int) -> int:
    """Words or tokens by which n-grams of a view are found."""
    lengths = {View.WORDS: min(MIN_WORDS, size), View.PHRASES: PHRASE, View.PATTERNS: PATTERN}
    return lengths.get(view, _SHORTEST)


def _ngrams(
    items: Hashes, first: int, keys: Iterable[tuple[int, bytes]]
) -> dict[int, tuple[bytes, int]]:
    hashes = ngram_hashes(items, first)
    return {at: (key, int(hashes[at])) for at, key in keys}


def _eval_texts(number: int, problem: ProblemText, size: int) -> Iterator[EvalText]:
    """Yield the texts of a problem; n-grams of words have ``size`` words."""
    statement = unescape(problem.statement)
    words = words_of(statement)
    length = min(size, len(words))
    least = min(MIN_WORDS, size)
    specific = len(words) >= size or (len(words) >= least and word_bits(words) >= MIN_BITS)
    starts = range(len(words) - length + 1) if specific else ()
    yield _of_words(number, View.WORDS, words, length, starts, size)
    if names := own_names(statement):
        yield _phrases(number, words, names, size)
    shown = {pattern for text in (statement, *_IDIOMS) for pattern in _patterns(text)}
    for at, code in enumerate(problem.solutions, start=1):
        yield from _program(number, f"solution {at}", code, shown)


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
    keys = ((at, hashes[at : at + length].tobytes()) for at in starts)
    ngrams = _ngrams(hashes, _sieve_length(view, size), keys)
    return EvalText(number, Part.STATEMENT, Part.STATEMENT, view, texts, length, ngrams)


def _patterns(text: str) -> Iterator[bytes]:
    tokens = tokenize_code(plain_code(text))
    return (tokens.pattern(at, PATTERN) for at in range(len(tokens.numbers) - PATTERN + 1))


def _program(number: int, name: str, code: str, shown: set[bytes]) -> Iterator[EvalText]:
    """Yield the patterns of a program, or a program that says little with its names."""
    tokens = tokenize_code(plain_code(unescape(code)), words=True)
    words = tokens.words
    patterns = {
        at: pattern
        for at in range(len(words) - PATTERN + 1)
        if (pattern := tokens.pattern(at, PATTERN)) not in shown
        and token_bits(words[at : at + PATTERN]) >= _MIN_PATTERN_BITS
    }
    # A copy may lack the header, or have another one; but a body that says little needs it.
    header = _headers(words)
    body = [at for at in patterns if header.isdisjoint(range(at, at + PATTERN))]
    for starts, least in ((body, _MIN_BODY_BITS), (list(patterns), _MIN_CODE_BITS)):
        covered = sorted({at + step for at in starts for step in range(PATTERN)})
        if token_bits([words[at] for at in covered]) >= least:
            ngrams = _ngrams(tokens.nameless, PATTERN, ((at, patterns[at]) for at in starts))
            yield EvalText(number, Part.SOLUTIONS, name, View.PATTERNS, words, PATTERN, ngrams)
            return
    yield EvalText(number, Part.SOLUTIONS, name, View.PATTERNS, words)
    length = len(words)
    if _SHORTEST <= length <= _LONGEST and word_bits(words_of(plain_code(code))) >= MIN_BITS:
        ngrams = _ngrams(tokens.numbers, _SHORTEST, [(0, tokens.numbers.tobytes())])
        yield EvalText(number, Part.SOLUTIONS, name, View.PROGRAM, words, length, ngrams)


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


# Normalization of texts, and estimates of how specific they are

_UNICODE_ESCAPE = re.compile(r"(?<!\\)\\++u([0-9a-fA-F]{4})")
_ESCAPED = re.compile(r"(?<!\\)\\++(?=[\"'\n])")
_TAG = re.compile(
    r"</?(?:p|br|hr|li|ul|ol|dl|dd|dt|div|span|pre|code|b|i|u|em|strong|tt|sub|sup|blockquote|h[1-6]"
    r"|table|tr|td|th)(?:\s+[\w-]{1,30}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'))*\s*/?>"
)
_NESTED_ESCAPES = 3
# Both sides of a comparison lose the numbers of a list, because a copy may have other bullets.
_BULLET = re.compile(r"\n[ \t]*\d{1,2}[.)][ \t]")


def unescape(text: str) -> str:
    """Undo the escapes of JSON and HTML, also nested ones, and remove tags of formatting.

    Backslashes that remain do not matter, because neither words nor tokens have any.
    """
    if "\\" in text:
        text = text.replace("\\n", "\n").replace("\\r", " ").replace("\\t", " ")
        text = _UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        text = _ESCAPED.sub("", text)
    for _ in range(_NESTED_ESCAPES):
        if "&" not in text:
            break
        text = html.unescape(text)
    return _TAG.sub(" ", text) if "<" in text else text


def words_of(text: str) -> list[bytes]:
    """Split an unescaped text into lower-case words."""
    return fold(_BULLET.sub("\n", f"\n{text}")).split()


def may_have_code(text: str) -> bool:
    """Whether a text has any sign of a program that is worth searching."""
    return any(sign in text for sign in ("=", "return", "print", "def "))


# Words that are in most statements and in most documentation.
_COMMON = frozenset(
    b"""
    a all an and any are as assert at be by can check class count create data def do
    each elements else every example false file find first following for from
    function get given has have if implement import in input int integer integers
    into is it its last len length list lists many may more most must name new no
    none not number numbers of on one only or order other output print program
    python range return returns same self set should so str string strings take than
    that the their then there these they this to true tuple two type use using value
    values was we whether which will with write you your
    """.split()
)


def word_bits(words: Sequence[bytes]) -> float:
    """Estimate how specific words are, in bits: few for common words, letters and short numbers."""
    return sum(map(_word_bits, words))


def _word_bits(word: bytes) -> float:
    if len(word) == 1 or (len(word) == 2 and word.isdigit()):
        return 2.0
    return 4.0 if word in _COMMON else 8.0


_COMMON_METHODS = frozenset(
    b"""
    .add .append .clear .copy .count .decode .encode .endswith .extend .find .format .get .index
    .insert .items .join .keys .lower .pop .remove .replace .setdefault .sort .split .startswith
    .strip .update .upper .values
    """.decode().split()
)


def token_bits(tokens: Sequence[str]) -> float:
    """Estimate how specific tokens are, in bits: rough logarithms of their frequencies in code."""
    return sum(map(_token_bits, tokens))


def _token_bits(token: str) -> float:
    if is_name(token) or token == ":":
        return 0.5
    if token in KEYWORDS or not (token[-1].isalnum() or token[-1] == "_"):
        return 2.0
    if token.isdigit() and len(token) == 1:
        return 3.0
    if token in BUILTINS:
        return 4.0
    return 7.0 if token in _COMMON_METHODS or token[0].isdigit() else 10.0


# Index


@dataclass(frozen=True, slots=True)
class _Sieve:
    """N-grams of one view, by length and key, with a filter by their first items."""

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

    def of_items(self, items: Hashes) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, number, key) of the n-grams whose keys are their items."""
        for at in self.candidates(items):
            for length, ngrams in self.ngrams.items():
                key = items[at : at + length].tobytes()
                if key in ngrams:
                    yield at, ngrams[key], key


@dataclass(frozen=True, slots=True)
class Match:
    """N-grams of a problem's text in one document; ``share`` is relative to its indexed n-grams.

    ``positions`` are the words of the text at which the n-grams begin.
    """

    share: float
    text: int
    path: str
    row: int
    positions: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """Sums over documents; ``texts`` is the number of documents that are not blank.

    ``best`` has the document with the highest share for each text of a problem, ``hits`` the number
    of documents with any n-gram of a problem.
    """

    documents: int = 0
    texts: int = 0
    best: dict[int, Match] = field(default_factory=dict)
    hits: Counter[int] = field(default_factory=Counter)

    def add(self, match: Match) -> None:
        """Keep the match with the highest share; on a tie, the first one."""
        best = self.best.get(match.text)
        if best is None or match.share > best.share:
            self.best[match.text] = match


class Index:
    """Searchable n-grams of problems, without those in more than ``max_problems`` problems.

    Attributes:
        texts: The texts of all problems.
        of_problem: Positions of a problem's texts.
        counts: The number of searchable n-grams of each text.
    """

    def __init__(self, problems: Sequence[ProblemText], size: int, max_problems: int) -> None:
        self.texts = [
            text
            for number, problem in enumerate(problems)
            for text in _eval_texts(number, problem, size)
        ]
        self.of_problem: dict[int, list[int]] = defaultdict(list)
        for number, text in enumerate(self.texts):
            self.of_problem[text.problem].append(number)
        self._positions = [{key: at for at, (key, _) in text.ngrams.items()} for text in self.texts]
        holders: dict[tuple[View, int, bytes], dict[int, int]] = defaultdict(dict)
        for number, text in enumerate(self.texts):
            for key, beginning in text.ngrams.values():
                holders[text.view, text.length, key][number] = beginning
        kept = {
            ngram: owners
            for ngram, owners in holders.items()
            if len({self.texts[number].problem for number in owners}) <= max_problems
        }
        self._postings = [tuple(owners) for owners in kept.values()]
        counts = Counter(number for owners in self._postings for number in owners)
        self.counts = [counts[number] for number in range(len(self.texts))]
        own = (text for text in self.texts if text.view in (View.WORDS, View.PHRASES))
        words = sorted({word.encode("utf-8", "surrogatepass") for t in own for word in t.words})
        self._words = dict(zip(words, word_hashes(words).tolist(), strict=True))
        self._sieves = dict(_sieves(kept, size))

    def tally(self, path: str, documents: Iterator[Document]) -> Tally:
        """Search documents of one file."""
        tally = Tally()
        for document in documents:
            texts = [unescape(text) for text in document.texts]
            tally.documents += 1
            tally.texts += any(text and not text.isspace() for text in texts)
            matches = list(self._matches(path, document.row, texts))
            for match in matches:
                tally.add(match)
            tally.hits.update({self.texts[match.text].problem for match in matches})
        return tally

    def _matches(self, path: str, row: int, texts: Sequence[str]) -> Iterator[Match]:
        places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, number, key in self._found(texts):
            for text in self._postings[number]:
                places[text].append((at, self._positions[text][key]))
        for number, hits in places.items():
            chosen = _densest(sorted(hits), self.texts[number].span)
            share = len(chosen) / self.counts[number]
            yield Match(share, number, path, row, tuple(sorted(chosen)))

    def _found(self, texts: Sequence[str]) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position in the document, number, key) of every n-gram."""
        words = [word for text in texts for word in (*words_of(text), b"\0")]
        items = np.array([self._words.get(word, 0) for word in words], np.uint64)
        for view in (View.WORDS, View.PHRASES):
            if sieve := self._sieves.get(view):
                yield from sieve.of_items(items)
        code = _SEAM.join(plain_code(text) for text in texts if may_have_code(text))
        if code and (View.PATTERNS in self._sieves or View.PROGRAM in self._sieves):
            yield from self._of_code(tokenize_code(code))

    def _of_code(self, tokens: CodeTokens) -> Iterator[tuple[int, int, bytes]]:
        if sieve := self._sieves.get(View.PATTERNS):
            for length, ngrams in sieve.ngrams.items():
                for at in sieve.candidates(tokens.nameless):
                    key = tokens.pattern(at, length)
                    if key in ngrams:
                        yield at, ngrams[key], key
        if sieve := self._sieves.get(View.PROGRAM):
            for at, number, key in sieve.of_items(tokens.numbers):
                # A longer program may begin with the same tokens.
                if tokens.ends[at + len(key) // 8 - 1]:
                    yield at, number, key


def _sieves(
    kept: Mapping[tuple[View, int, bytes], Mapping[int, int]], size: int
) -> Iterator[tuple[View, _Sieve]]:
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
            yield view, _Sieve(_sieve_length(view, size), slots, beginnings, dict(ngrams))


def _densest(hits: Sequence[tuple[int, int]], span: int) -> set[int]:
    """Select the most different n-grams within ``span`` words of a document.

    The common n-grams of a large document may be most of a text that is not in it.
    """
    best: set[int] = set()
    counts: Counter[int] = Counter()
    first = 0
    for at, ngram in hits:
        counts[ngram] += 1
        while hits[first][0] < at - span:
            old = hits[first][1]
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
            first += 1
        if len(counts) > len(best):
            best = set(counts)
    return best
