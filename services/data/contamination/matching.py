"""Document search for indexed n-grams, with sums per problem."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from services.data.contamination.code import (
    LONGEST,
    CodeTokens,
    may_have_code,
    pattern_hashes_of,
    plain_code,
    tokenize_code,
    unescape,
    word_keys,
)
from services.data.contamination.code import SEPARATOR as CODE_SEPARATOR
from services.data.contamination.documents import Document
from services.data.contamination.files import DEFAULT_SIZES, BufferSizes
from services.data.contamination.index import (
    CODE_VIEWS,
    EvalText,
    Index,
    Lookup,
    Numbers,
    Sieve,
    View,
)
from services.data.contamination.tokens import Tokens, tokenize
from services.data.contamination.words import fold_text
from services.data.ngrams import Hashes, extend_ngrams, ngram_hashes

# No text contains this word, because `fold` replaces the character by a blank. Between two texts
# it prevents n-grams that span both.
SEPARATOR = b" \0 "
_CACHED = 1 << 15


class WordMatcher:
    """Finds the n-grams of an index in folded text; ``window`` bytes are searched at once."""

    def __init__(self, index: Index, window: int) -> None:
        self._window = window
        self._sieves = index.sieves_of(View.WORDS, View.PHRASES, View.GAPPED)
        self._words = lru_cache(_CACHED)(index.words)
        lengths = [lookup.length for sieve in self._sieves for lookup in sieve.lookups]
        self._overlap = max(lengths, default=0) - 1

    def find(self, folded: bytes) -> Iterator[tuple[int, int]]:
        """Yield (offset in the text, number of the n-gram) of every exact match.

        To bound memory the text is searched in windows. They overlap by one word less than the
        longest n-gram, so a shorter n-gram may be found twice.
        """
        start = end = 0
        while end < len(folded) and self._sieves:
            end = _window_end(folded, end + self._window)
            window = folded[start:end]
            tokens = tokenize(window)
            for sieve in self._sieves:
                for offset, ngram in self._find(window, tokens, sieve):
                    yield start + offset, ngram
            if len(tokens.starts) >= self._overlap:
                start += int(tokens.starts[-self._overlap])

    def _find(self, window: bytes, tokens: Tokens, sieve: Sieve) -> Iterator[tuple[int, int]]:
        beginnings = ngram_hashes(tokens.hashes, sieve.length)
        at = sieve.candidates(beginnings)
        hashes, length = beginnings[at], sieve.length
        for lookup in sieve.lookups:
            while length < lookup.length:
                kept = at + length < len(tokens.hashes)
                at, hashes = at[kept], hashes[kept]
                hashes = extend_ngrams(hashes, tokens.hashes[at + length])
                length += 1
            yield from self._confirm(window, tokens, lookup, *_known(lookup, at, hashes))

    def _confirm(
        self, window: bytes, tokens: Tokens, lookup: Lookup, at: Numbers, ngrams: Numbers
    ) -> Iterator[tuple[int, int]]:
        starts = tokens.starts[at].tolist()
        ends = tokens.ends[at + lookup.length - 1].tolist()
        for start, end, ngram in zip(starts, ends, ngrams.tolist(), strict=True):
            if window[start:end].split() == self._words(ngram):
                yield start, ngram


class CodeMatcher:
    """Finds the patterns of an index in plain code."""

    def __init__(self, index: Index, window: int) -> None:
        self._window = window
        self._sieves = index.sieves_of(*CODE_VIEWS)

    @property
    def idle(self) -> bool:
        return not self._sieves

    def find(self, code: bytes) -> Iterator[tuple[int, int]]:
        """Yield (offset in the text, number of the pattern) of every match.

        Windows overlap by the longest pattern, so a pattern may be found twice.
        """
        start = end = 0
        while end < len(code) and self._sieves:
            end = _window_end(code, end + self._window)
            window = code[start:end]
            tokens = tokenize_code(window)
            for at, pattern in self._find(window, tokens):
                yield start + at, pattern
            if len(tokens.starts) > LONGEST:
                start += int(tokens.starts[-LONGEST - 1])

    def _find(self, window: bytes, tokens: CodeTokens) -> Iterator[tuple[int, int]]:
        keys = word_keys(tokens)
        for sieve in self._sieves:
            chosen = sieve.candidates(ngram_hashes(keys, sieve.length))
            lengths = [lookup.length for lookup in sieve.lookups]
            patterns_of = pattern_hashes_of(tokens, chosen, lengths)
            for lookup, (at, hashes) in zip(sieve.lookups, patterns_of, strict=True):
                at, patterns = _known(lookup, at, hashes)
                for one, pattern in zip(at.tolist(), patterns.tolist(), strict=True):
                    if sieve.view is View.PATTERNS or _ends_line(
                        window, tokens, one + lookup.length
                    ):
                        yield int(tokens.starts[one]), pattern


_AFTER_PROGRAM = re.compile(rb"(?:\.0*)?[ \t\r\\();,]*[\n\"'`]")


def _ends_line(code: bytes, tokens: CodeTokens, end: int) -> bool:
    """Whether the token before ``end`` is the last one of its line, or of a string that is data."""
    if end == len(tokens.starts):
        return True
    gap = code[tokens.ends[end - 1] : tokens.starts[end]]
    return _AFTER_PROGRAM.match(gap) is not None


def has_program(code: bytes, program: bytes) -> bool:
    """Whether code has all tokens of a program with its names, up to the end of a line."""
    tokens, wanted = tokenize_code(code), tokenize_code(program).hashes
    last = len(tokens.hashes) - len(wanted)
    for at in np.flatnonzero(tokens.hashes[: last + 1] == wanted[:1]).tolist() if last >= 0 else ():
        end = at + len(wanted)
        if np.array_equal(tokens.hashes[at:end], wanted) and _ends_line(code, tokens, end):
            return True
    return False


def _known(lookup: Lookup, at: Numbers, hashes: Hashes) -> tuple[Numbers, Numbers]:
    """Select the positions whose n-gram is in the index, with its number."""
    places = np.searchsorted(lookup.hashes, hashes)
    places[places == len(lookup.hashes)] = 0
    known = lookup.hashes[places] == hashes
    return at[known], places[known] + lookup.first


def _window_end(folded: bytes, end: int) -> int:
    """Find the first blank at or after ``end``."""
    found = folded.find(b" ", end)
    return len(folded) if found < 0 else found


@dataclass(frozen=True, slots=True)
class Match:
    """N-grams of a problem's text in one document; ``share`` is relative to its indexed n-grams."""

    share: float
    text: int
    path: str
    row: int
    ngrams: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """Sums over documents; ``texts`` is the number of their texts that are not blank.

    ``found`` has all n-grams that occur, ``best`` the document with the highest share for each text
    of a problem, ``hit_documents`` the number of documents with any n-gram of a problem.
    """

    documents: int = 0
    texts: int = 0
    found: set[int] = field(default_factory=set)
    best: dict[int, Match] = field(default_factory=dict)
    hit_documents: Counter[int] = field(default_factory=Counter)

    def add(self, match: Match) -> None:
        """Keep the match with the highest share; on a tie, the first one."""
        known = self.best.get(match.text)
        if known is None or match.share > known.share:
            self.best[match.text] = match

    def merge(self, later: "Tally", rows: int) -> None:
        """Add the sums of a later part that begins at row ``rows``."""
        self.documents += later.documents
        self.texts += later.texts
        self.found |= later.found
        self.hit_documents.update(later.hit_documents)
        for match in later.best.values():
            self.add(replace(match, row=match.row + rows))


def tally_documents(
    index: Index, path: str, documents: Iterable[Document], sizes: BufferSizes = DEFAULT_SIZES
) -> Tally:
    """Search documents for the n-grams of the index, in batches of many small documents."""
    counter = _TallyBuilder(index, path, sizes)
    for document in documents:
        counter.add(document)
    counter.flush()
    return counter.tally


@dataclass(slots=True)
class _Batch:
    """Texts of documents in one view, searched together; ``owners`` are the documents' numbers."""

    separator: bytes
    texts: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    owners: list[int] = field(default_factory=list)

    def add(self, owner: int, text: bytes) -> None:
        self.owners.append(owner)
        self.texts.append(text)
        self.starts.append(self.starts[-1] + len(text) + len(self.separator))

    def joined(self) -> bytes:
        return self.separator.join(self.texts)

    def text_of(self, owner: int) -> bytes:
        return self.texts[self.owners.index(owner)] if owner in self.owners else b""

    def start_of(self, owner: int) -> int:
        return self.starts[self.owners.index(owner)]

    def owner(self, offset: int) -> int:
        return self.owners[bisect_right(self.starts, offset) - 1]


class _TallyBuilder:
    """Collects documents in batches, and searches a batch when it is full."""

    def __init__(self, index: Index, path: str, sizes: BufferSizes) -> None:
        self.tally = Tally()
        self._batch_bytes = sizes.batch
        self._index = index
        self._path = path
        self._word_matcher = WordMatcher(index, sizes.window)
        self._code_matcher = CodeMatcher(index, sizes.window)
        self._texts_of = lru_cache(_CACHED)(index.postings.texts_of)
        self._ngram_counts = index.ngram_counts.tolist()
        self._reset()

    def add(self, document: Document) -> None:
        texts = [unescape(text) for text in document.texts]
        folded = [fold_text(text) for text in texts]
        number = len(self._rows)
        self.tally.documents += 1
        self.tally.texts += sum(bool(text) and not text.isspace() for text in folded)
        self._rows.append(document.row)
        self._words.add(number, SEPARATOR.join(folded))
        if not self._code_matcher.idle:
            programs = [
                plain_code(text).encode("utf-8", "surrogatepass")
                for text in texts
                if may_have_code(text)
            ]
            if programs:
                self._code.add(number, CODE_SEPARATOR.join(programs))
        if self._words.starts[-1] >= self._batch_bytes:
            self.flush()

    def flush(self) -> None:
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for batch, matcher in (
            (self._words, self._word_matcher),
            (self._code, self._code_matcher),
        ):
            for offset, ngram in matcher.find(batch.joined()):
                found[batch.owner(offset)].append((offset, ngram))
        for number, ngrams in sorted(found.items()):
            matches = self._matches(number, ngrams)
            self.tally.found.update(ngram for match in matches for ngram in match.ngrams)
            for match in matches:
                self.tally.add(match)
            problems = {self._index.texts[match.text].problem for match in matches}
            self.tally.hit_documents.update(problems)
        self._reset()

    def _reset(self) -> None:
        self._rows: list[int] = []
        self._words = _Batch(SEPARATOR)
        self._code = _Batch(CODE_SEPARATOR)

    def _matches(self, number: int, found: Iterable[tuple[int, int]]) -> list[Match]:
        by_text: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for offset, ngram in sorted(found):
            for text in self._texts_of(ngram):
                by_text[text].append((offset, ngram))
        matches = []
        for text, ngrams in by_text.items():
            one = self._index.texts[text]
            if one.named and not has_program(self._code.text_of(number), one.code):
                continue
            if one.gapped and not self._has_gapped(number, one, ngrams):
                continue
            if one.span is None:
                chosen = sorted({ngram for _, ngram in ngrams})
            else:
                chosen = _densest(ngrams, one.span)
            share = len(chosen) / self._ngram_counts[text]
            matches.append(Match(share, text, self._path, self._rows[number], tuple(chosen)))
        return matches

    def _has_gapped(self, number: int, text: EvalText, found: Iterable[tuple[int, int]]) -> bool:
        """Whether the words around an n-gram that was found are those of a gapped text."""
        document = self._words.text_of(number) + b" "
        first, span = self._words.start_of(number), text.span or 0
        return any(
            text.gapped and text.gapped.search(document, max(0, at - span), at + span)
            for at in (offset - first for offset, _ in found)
        )


def _densest(found: Sequence[tuple[int, int]], span: int) -> list[int]:
    """Select the most different n-grams within ``span`` bytes, in ascending order.

    The common n-grams of a large document may be most of a text that is not in it.
    """
    best: set[int] = set()
    counts: Counter[int] = Counter()
    first = 0
    for offset, pattern in found:
        counts[pattern] += 1
        while found[first][0] < offset - span:
            old = found[first][1]
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
            first += 1
        if len(counts) > len(best):
            best = set(counts)
    return sorted(best)
