"""N-gram index of evaluation problems, for the search in a corpus."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from services.data.contamination.code import (
    LONGEST,
    PATTERN,
    SHORTEST,
    CodeTokens,
    Keys,
    information,
    pattern_hashes,
    plain_code,
    tokenize_code,
    unescape,
    word_keys,
)
from services.data.contamination.tokens import Positions, tokenize
from services.data.contamination.words import fold_text, word_information
from services.data.ngrams import Hashes, ngram_hashes
from services.data.overlap.views import BUILTINS, bound_names, own_names

# A text that is shorter than an n-gram is one n-gram as a whole if it has so many words and bits.
# The bits are measured: in 130 MB of other people's programs and documentation is no such text
# but the idioms below.
MIN_WORDS = 7
MIN_BITS = 28.0
MIN_CODE_BITS = 16.0
# Bits of the bodies of a program's functions, below which the program counts as a whole.
_MIN_BODY_BITS = 40.0
# Phrases of four words are common, so a statement needs many of them, and a copy nearly all.
_PHRASE = 4
_MIN_PHRASES = 4
_MIN_PHRASES_BITS = 40.0
# Words by which a statement is found as a whole, and those of a copy per word of a name.
_ANCHOR = 2
_WORDS_PER_NAME = 4
# A pattern of twelve tokens with less is nearly a row of names.
_MIN_PATTERN_BITS = 14.0
# An n-gram of tests with less information, such as thirteen small numbers, is in any corpus.
_MIN_TEST_BITS = 32.0
# Words of a problem's tests that are searched; a ground truth may have megabytes.
_MAX_TEST_WORDS = 4000


STATEMENT = "statement"
PROSE = "statement's prose"
"""Name of the sentences of a statement that is a function's docstring."""


class Part(StrEnum):
    """The parts of a problem, which are judged separately."""

    STATEMENT = "statement"
    SOLUTIONS = "solutions"
    TESTS = "tests"


class View(StrEnum):
    """Form of a text that is compared."""

    WORDS = "words"
    PHRASES = "phrases"
    """Sequences of four words without the names that the statement's code defines."""
    GAPPED = "gapped"
    """All words of a short statement, with any words where its code has names."""
    PATTERNS = "patterns"
    """Sequences of tokens of a program without its names."""
    PROGRAM = "program"
    """All tokens of a short program without its names."""


CODE_VIEWS = (View.PATTERNS, View.PROGRAM)


@dataclass(frozen=True, slots=True)
class EvalProblem:
    """An evaluation problem, without the frame around it in a prompt.

    ``tests`` has a text per test. ``missing`` names the parts that the data do not have, with the
    remedy.
    """

    dataset: str
    problem_id: str
    statement: str
    solutions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvalText:
    """A text of a problem in one view, split into words or tokens.

    ``problem`` counts from 0; ``name`` is that in reports. ``length`` is the number of words per
    n-gram; 0 means that the text is not specific enough to check. ``starts`` are the words at which
    n-grams begin. ``code`` is the plain code of a program. ``span`` is the number of bytes of a
    document within which n-grams count together, or None for all. ``named`` if a match must have
    the names of the program, too. ``gapped`` must match around the n-gram of a gapped text.
    """

    problem: int
    part: Part
    name: str
    view: View
    words: tuple[bytes, ...]
    length: int
    starts: Positions
    code: bytes = b""
    span: int | None = None
    named: bool = False
    gapped: re.Pattern[bytes] | None = None


def eval_texts(problems: Sequence[EvalProblem], size: int) -> list[EvalText]:
    return [
        text for number, problem in enumerate(problems) for text in _texts_of(number, problem, size)
    ]


def min_words(size: int) -> int:
    """Minimum words of a text that is searched for."""
    return min(MIN_WORDS, size)


def _texts_of(number: int, problem: EvalProblem, size: int) -> Iterator[EvalText]:
    statement = problem.statement
    yield _words_text(number, Part.STATEMENT, STATEMENT, statement, size)
    yield from _joined_text(number, statement, size)
    for prose in _prose(statement):
        yield _words_text(number, Part.STATEMENT, PROSE, prose, size)
    if names := own_names(statement):
        yield (phrases := _phrases_text(number, statement, names))
        if not phrases.length:
            yield from _gapped_text(phrases, names)
    shown = _shown_patterns(statement)
    for at, code in enumerate(problem.solutions, start=1):
        name = f"solution {at}"
        for variant in (code, *_without_shadows(code)):
            yield (text := _code_text(number, name, variant, shown))
        if not text.length:
            yield from _named_program(text)
    if problem.tests:
        yield _tests_text(number, problem.tests, size)


# Words

_DOCSTRING = re.compile(r"\"\"\"([\s\S]*?)\"\"\"|'''([\s\S]*?)'''")
_EXAMPLES = re.compile(
    r"^\W*(?:>>>|(?:for )?examples?\b.{0,20}$|e\.g\.)", re.MULTILINE | re.IGNORECASE
)


def _prose(statement: str) -> Iterator[str]:
    """Yield the sentences of a statement that is a function's docstring, without its examples."""
    docstrings = [one or other for one, other in _DOCSTRING.findall(statement)]
    if docstrings:
        text = docstrings[-1]
        examples = _EXAMPLES.search(text)
        yield text[: examples.start()] if examples else text


def _words_text(number: int, part: Part, name: str, text: str, size: int) -> EvalText:
    words = tuple(fold_text(unescape(text)).split())
    length = min(size, len(words))
    too_few = len(words) < min_words(size)
    if too_few or (len(words) < size and word_information(words) < MIN_BITS):
        length = 0
    starts = np.arange(len(words) - length + 1 if length else 0)
    return EvalText(number, part, name, View.WORDS, words, length, starts)


# A mark between two words that have no blank between them.
_JOINT = re.compile(r"(?<=[^\W_])[^\w\s]+(?=[^\W_])")
# A longer statement has enough n-grams without such a mark.
_JOINED_NGRAMS = 3


def _joined_text(number: int, statement: str, size: int) -> Iterator[EvalText]:
    """Yield a short statement as a corpus has it that deleted all punctuation."""
    joined = _JOINT.sub("", unescape(statement))
    text = _words_text(number, Part.STATEMENT, STATEMENT, joined, size)
    if joined != unescape(statement) and len(text.words) < _JOINED_NGRAMS * size:
        yield text


def _phrases_text(number: int, statement: str, names: frozenset[str]) -> EvalText:
    """Select the phrases of a statement that do not change when its code is renamed."""
    text = unescape(statement)
    named = _folded_names(names)
    words = tuple(fold_text(text).split())
    kept = np.array([word not in named for word in words], np.bool_)
    starts = _windows_without(~kept, _PHRASE)
    covered = [word for word, is_kept in zip(words, kept, strict=True) if is_kept]
    length = _PHRASE
    if len(starts) < _MIN_PHRASES or word_information(covered) < _MIN_PHRASES_BITS:
        length, starts = 0, starts[:0]
    return EvalText(
        number,
        Part.STATEMENT,
        STATEMENT,
        View.PHRASES,
        words,
        length,
        starts,
        span=_span(len(text.encode("utf-8", "surrogatepass"))),
    )


def _gapped_text(phrases: EvalText, names: frozenset[str]) -> Iterator[EvalText]:
    """Yield a statement with too few phrases as a whole, found by its most specific short run."""
    own = _folded_names(names)
    runs = [
        (is_name, list(run)) for is_name, run in groupby(phrases.words, lambda word: word in own)
    ]
    runs = runs[runs[0][0] : len(runs) - runs[-1][0]]
    kept = [word for is_name, run in runs for word in run if not is_name]
    if word_information(kept) < MIN_BITS or len(kept) < MIN_WORDS:
        return
    starts = [
        at
        for at in range(len(phrases.words) - _ANCHOR + 1)
        if own.isdisjoint(phrases.words[at : at + _ANCHOR])
    ]
    if starts:
        best = max(starts, key=lambda at: word_information(phrases.words[at : at + _ANCHOR]))
        parts = (
            rb"(?:[^ ]+ +){1,%d}?" % (_WORDS_PER_NAME * len(run))
            if is_name
            else b"".join(re.escape(word) + b" +" for word in run)
            for is_name, run in runs
        )
        yield replace(
            phrases,
            view=View.GAPPED,
            length=_ANCHOR,
            starts=np.array([best], np.intp),
            gapped=re.compile(b"".join((rb"(?<![^ ])", *parts))),
        )


def _folded_names(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset(word for name in names for word in fold_text(name).split())


def _tests_text(number: int, tests: Sequence[str], size: int) -> EvalText:
    words: list[bytes] = []
    starts: list[int] = []
    for test in tests:
        first = len(words)
        words += fold_text(unescape(test)).split()
        last = min(len(words), _MAX_TEST_WORDS) - size
        starts += [
            at
            for at in range(first, last + 1)
            if word_information(words[at : at + size]) >= _MIN_TEST_BITS
        ]
        if len(words) >= _MAX_TEST_WORDS:
            break
    kept = tuple(words[:_MAX_TEST_WORDS])
    length = size if starts else 0
    positions = np.array(starts, np.intp)
    return EvalText(number, Part.TESTS, "tests", View.WORDS, kept, length, positions)


# Code


def _shown_patterns(statement: str) -> frozenset[int]:
    """Hash the patterns of code that the statement shows, which are no sign of its solution."""
    tokens = _code_tokens(statement)
    at = np.arange(max(0, len(tokens.hashes) - PATTERN + 1))
    return frozenset(pattern_hashes(tokens, at, PATTERN).tolist())


def _code_text(number: int, name: str, code: str, shown: frozenset[int]) -> EvalText:
    """Select the patterns of a program.

    Headers of functions and imports are left out, because they depend on whom a program is written
    for. A program whose remaining patterns say little is one pattern, with its header.
    """
    text = _plain(code)
    tokens = tokenize_code(text)
    words = tuple(
        text[start:end]
        for start, end in zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True)
    )
    frame, imports = _frames(text, tokens, words)
    starts = _new_windows(tokens, words, frame, shown)
    view, length = View.PATTERNS, PATTERN
    if _bits(tokens, words, starts, PATTERN) < _MIN_BODY_BITS or (
        3 * len(starts) < np.count_nonzero(~frame) - PATTERN
    ):
        first = int(np.argmin(imports)) if len(imports) else 0
        if len(words) - first <= LONGEST:
            view, length, starts = View.PROGRAM, len(words) - first, np.array([first], np.intp)
        else:
            starts = _new_windows(tokens, words, imports, shown)
        if (
            length < SHORTEST
            or _bits(tokens, words, starts, length) < MIN_CODE_BITS
            or _IDIOMS & set(pattern_hashes(tokens, starts, length).tolist())
        ):
            length, starts = 0, starts[:0]
    return EvalText(
        number, Part.SOLUTIONS, name, view, words, length, starts, text, _span(len(text))
    )


def _idioms() -> frozenset[int]:
    """Hash programs that are specific by their bits, but in any large code base."""
    programs = (
        "def gcd(a, b):\n while b:\n  a, b = b, a % b\n return a",
        "def unique(xs):\n ys = []\n for x in xs:\n  if x not in ys:\n   ys.append(x)\n return ys",
        "def merged(a, b):\n c = a.copy()\n c.update(b)\n return c",
        "def length(xs):\n n = 0\n for x in xs:\n  n += 1\n return n",
        "def product(xs):\n p = 1\n for x in xs:\n  p *= x\n return p",
    )
    return frozenset(
        int(pattern_hashes(tokens, np.zeros(1, np.intp), len(tokens.hashes))[0])
        for tokens in map(tokenize_code, map(_plain, programs))
    )


def _named_program(text: EvalText) -> Iterator[EvalText]:
    """Yield a program that only its names make specific."""
    words = fold_text(text.code.decode("utf-8", "replace")).split()
    length = len(text.words)
    if SHORTEST <= length <= LONGEST and word_information(words) >= MIN_BITS:
        starts = np.zeros(1, np.intp)
        yield replace(text, view=View.PROGRAM, length=length, starts=starts, named=True)


def _new_windows(
    tokens: CodeTokens, words: Sequence[bytes], without: "_Marks", shown: frozenset[int]
) -> Positions:
    """Find the patterns that the statement does not show, and that are more than a row of names."""
    starts = _windows_without(without, PATTERN)
    hashes = pattern_hashes(tokens, starts, PATTERN).tolist()
    names = tokens.names.tolist()
    kept = [
        value not in shown
        and information(words[at : at + PATTERN], names[at : at + PATTERN]) >= _MIN_PATTERN_BITS
        for at, value in zip(starts.tolist(), hashes, strict=True)
    ]
    return starts[np.array(kept, np.bool_)]


def _without_shadows(code: str) -> Iterator[str]:
    """Yield the program with other names for variables that are called as builtins are.

    Whoever renames such a variable makes it a name like others.
    """
    shadows = bound_names(code) & BUILTINS
    if shadows:
        names = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(shadows))})(?!\w)")
        yield names.sub(lambda found: f"{found[0]}_0", code)


def _span(size: int) -> int:
    """Choose the bytes that a copy may take: its names may be longer, and it may be indented."""
    return 4 * size + 200


def _plain(code: str) -> bytes:
    return plain_code(unescape(code)).encode("utf-8", "surrogatepass")


def _code_tokens(text: str) -> CodeTokens:
    return tokenize_code(_plain(text))


def _bits(tokens: CodeTokens, words: Sequence[bytes], starts: Positions, length: int) -> float:
    """Compute the information of the tokens that windows cover."""
    covered = np.zeros(len(words), np.bool_)
    for start in starts.tolist():
        covered[start : start + length] = True
    at = np.flatnonzero(covered).tolist()
    return information([words[one] for one in at], tokens.names[covered].tolist())


_IDIOMS = _idioms()
_Marks = npt.NDArray[np.bool_]


def _frames(text: bytes, tokens: CodeTokens, words: Sequence[bytes]) -> tuple[_Marks, _Marks]:
    """Mark the tokens of headers and imports, and those of imports alone."""
    headers = np.zeros(len(words), np.bool_)
    imports = np.zeros(len(words), np.bool_)
    inside = line = False
    end = 0
    for at, word in enumerate(words):
        start = int(tokens.starts[at])
        if at == 0 or b"\n" in text[end:start]:
            line = word in (b"import", b"from")
        inside = inside or word in (b"def", b"class")
        headers[at], imports[at] = inside, line
        inside = inside and word != b":"
        end = int(tokens.ends[at])
    return headers | imports, imports


def _windows_without(frame: _Marks, length: int) -> Positions:
    """Find the windows without a marked token."""
    if len(frame) < length:
        return np.empty(0, np.intp)
    sums = np.concatenate([[0], np.cumsum(frame)])
    return np.flatnonzero(sums[length:] == sums[:-length])


Numbers = npt.NDArray[np.int64]
_SLOTS_PER_NGRAM = 64
_MIN_SLOT_BITS, _MAX_SLOT_BITS = 16, 26


@dataclass(frozen=True, slots=True)
class Lookup:
    """Sorted hashes of the n-grams of ``length`` words or tokens, numbered from ``first`` on."""

    view: View
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
    """Prefilter: reports whether any n-gram can begin with a hash of ``length`` words or tokens.

    One lookup in this table, which fits into a cache, rejects most words of a corpus. ``lookups``
    are of the n-grams that have passed it, by length.
    """

    view: View
    length: int
    shift: int
    slots: npt.NDArray[np.bool_]
    beginnings: Hashes
    lookups: tuple[Lookup, ...]

    def candidates(self, hashes: Hashes | Keys) -> Numbers:
        chosen = np.flatnonzero(
            self.slots[(hashes >> hashes.dtype.type(self.shift)).astype(np.intp)]
        )
        wanted = hashes[chosen].astype(np.uint64)
        places = np.searchsorted(self.beginnings, wanted)
        places[places == len(self.beginnings)] = 0
        known: Numbers = chosen[self.beginnings[places] == wanted]
        return known


@dataclass(frozen=True, slots=True)
class Index:
    """Searchable n-grams. ``ngram_counts`` has the number of indexed n-grams for each text."""

    texts: tuple[EvalText, ...]
    ngram_counts: Numbers
    postings: Postings
    sieves: tuple[Sieve, ...]

    def sieves_of(self, *views: View) -> tuple[Sieve, ...]:
        return tuple(sieve for sieve in self.sieves if sieve.view in views)

    def words(self, ngram: int) -> list[bytes]:
        text = self.texts[self.postings.texts_of(ngram)[0]]
        start = self.postings.positions_of(ngram)[0]
        return list(text.words[start : start + text.length])


_VIEWS = tuple(View)
_KINDS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Rows:
    """N-grams of all texts, one per row; ``beginnings`` are hashes of their first words.

    Sorted by kind, hash, text and position. A kind is the number of a view and a length.
    """

    kinds: Numbers
    hashes: Hashes
    texts: Numbers
    positions: Numbers
    beginnings: Hashes

    def take(self, rows: Numbers) -> "_Rows":
        return _Rows(
            self.kinds[rows],
            self.hashes[rows],
            self.texts[rows],
            self.positions[rows],
            self.beginnings[rows],
        )

    def ids(self) -> Numbers:
        """Number the distinct n-grams from 0."""
        return np.cumsum(_changes(self.kinds) | _changes(self.hashes)) - 1


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
        postings=Postings(offsets, rows.texts, rows.positions),
        sieves=tuple(_sieves(rows, tuple(_lookups(rows.take(offsets[:-1]))), shortest)),
    )


def _all_rows(texts: Sequence[EvalText], shortest: int) -> _Rows:
    hashes, beginnings = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for text in texts:
        if text.view in CODE_VIEWS:
            tokens = tokenize_code(text.code)
            found = pattern_hashes(tokens, text.starts, text.length)
            begin = _sieve_length(text.view, text.length, shortest)
            keys = ngram_hashes(word_keys(tokens), begin)
            first = keys[text.starts].astype(np.uint64)
        else:
            words = tokenize(b" ".join(text.words)).hashes
            found = (ngram_hashes(words, text.length) if text.length else words[:0])[text.starts]
            begin = _sieve_length(text.view, text.length, shortest)
            first = ngram_hashes(words, begin)[text.starts] if text.length else found
        hashes.append(found)
        beginnings.append(first)
    counts = [len(found) for found in hashes[1:]]
    kinds = [_VIEWS.index(text.view) * _KINDS + text.length for text in texts]
    rows = _Rows(
        kinds=np.repeat(np.array(kinds, np.int64), counts),
        hashes=np.concatenate(hashes),
        texts=np.repeat(np.arange(len(texts)), counts),
        positions=np.concatenate([np.empty(0, np.intp), *(text.starts for text in texts)]),
        beginnings=np.concatenate(beginnings),
    )
    return rows.take(np.lexsort((rows.positions, rows.texts, rows.hashes, rows.kinds)))


def _select_rows(rows: _Rows, texts: Sequence[EvalText], max_problems: int) -> _Rows:
    """Select the first occurrence in each text of every n-gram that is not too common."""
    ids = rows.ids()
    rows_of_problems = np.array([text.problem for text in texts])[rows.texts]
    problems = np.bincount(ids[_changes(ids) | _changes(rows_of_problems)])
    firsts = _changes(ids) | _changes(rows.texts)
    return rows.take(np.flatnonzero(firsts & (problems[ids] <= max_problems)))


def _lookups(distinct: _Rows) -> Iterator[Lookup]:
    kinds, firsts = np.unique(distinct.kinds, return_index=True)
    bounds = pairwise([*firsts.tolist(), len(distinct.kinds)])
    for kind, (first, end) in zip(kinds.tolist(), bounds, strict=True):
        view = _VIEWS[kind // _KINDS]
        yield Lookup(view, kind % _KINDS, first, distinct.hashes[first:end])


def _sieve_length(view: View, length: int, shortest: int) -> int:
    """Choose the words or tokens by which n-grams of this length are found."""
    if view is View.WORDS:
        return shortest
    if view is View.PHRASES:
        return _PHRASE
    if view is View.GAPPED:
        return _ANCHOR
    return PATTERN if length >= PATTERN else SHORTEST


def _sieves(rows: _Rows, lookups: Sequence[Lookup], shortest: int) -> Iterator[Sieve]:
    def key(view: View, length: int) -> tuple[View, int]:
        return view, _sieve_length(view, length, shortest)

    keys = [key(_VIEWS[kind // _KINDS], kind % _KINDS) for kind in rows.kinds.tolist()]
    for view, length in dict.fromkeys(keys):
        own = np.fromiter((one == (view, length) for one in keys), np.bool_, len(keys))
        found = tuple(one for one in lookups if key(one.view, one.length) == (view, length))
        yield _sieve(view, length, rows.beginnings[own], found)


def _sieve(view: View, length: int, beginnings: Hashes, lookups: tuple[Lookup, ...]) -> Sieve:
    """Build the table, for hashes of words with 64 bits and keys of tokens with 32."""
    bits = (len(beginnings) * _SLOTS_PER_NGRAM).bit_length()
    bits = min(max(bits, _MIN_SLOT_BITS), _MAX_SLOT_BITS)
    shift = (32 if view in CODE_VIEWS else 64) - bits
    slots = np.zeros(1 << bits, dtype=np.bool_)
    slots[(beginnings >> np.uint64(shift)).astype(np.intp)] = True
    return Sieve(view, length, shift, slots, np.unique(beginnings), lookups)


def _changes(column: Numbers | Hashes) -> npt.NDArray[np.bool_]:
    """Mark the rows that differ from the row before; the first row always does."""
    return np.append(np.ones(min(1, len(column)), np.bool_), column[1:] != column[:-1])
