"""Document search for indexed n-grams, with sums per problem."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from services.data.contamination.documents import Document
from services.data.contamination.files import DEFAULT_SIZES, BufferSizes
from services.data.contamination.index import Index, Lookup, Numbers, Tokens, tokenize
from services.data.ngrams import Hashes, extend_ngrams, fold, ngram_hashes

# No text contains this word, because `fold` replaces the character by a blank. Between two texts
# it prevents n-grams that span both.
SEPARATOR = b" \0 "
_CACHED = 1 << 15


class Matcher:
    """Finds the n-grams of an index in folded text; ``window`` bytes are searched at once."""

    def __init__(self, index: Index, window: int) -> None:
        self._index = index
        self._window = window
        self._words = lru_cache(_CACHED)(index.words)
        self._overlap = max((lookup.length for lookup in index.lookups), default=0) - 1

    def find(self, folded: bytes) -> Iterator[tuple[int, int]]:
        """Yield (offset in the text, number of the n-gram) of every exact match.

        To bound memory the text is searched in windows. They overlap by one word less than the
        longest n-gram, so a shorter n-gram may be found twice.
        """
        start = end = 0
        while end < len(folded) and self._index.lookups:
            end = _window_end(folded, end + self._window)
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
            yield from self._confirm(window, tokens, lookup, *_known(lookup, at, hashes))

    def _confirm(
        self, window: bytes, tokens: Tokens, lookup: Lookup, at: Numbers, ngrams: Numbers
    ) -> Iterator[tuple[int, int]]:
        starts = tokens.starts[at].tolist()
        ends = tokens.ends[at + lookup.length - 1].tolist()
        for start, end, ngram in zip(starts, ends, ngrams.tolist(), strict=True):
            if window[start:end].split() == self._words(ngram):
                yield start, ngram


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


class _TallyBuilder:
    """Collects documents in batches, and searches a batch when it is full."""

    def __init__(self, index: Index, path: str, sizes: BufferSizes) -> None:
        self.tally = Tally()
        self._batch_bytes = sizes.batch
        self._index = index
        self._path = path
        self._matcher = Matcher(index, sizes.window)
        self._texts_of = lru_cache(_CACHED)(index.postings.texts_of)
        self._ngram_counts = index.ngram_counts.tolist()
        self._reset()

    def add(self, document: Document) -> None:
        texts = [fold(text) for text in document.texts]
        self.tally.documents += 1
        self.tally.texts += sum(bool(text) and not text.isspace() for text in texts)
        self._rows.append(document.row)
        self._batch.append(SEPARATOR.join(texts))
        self._starts.append(self._starts[-1] + len(self._batch[-1]) + len(SEPARATOR))
        if self._starts[-1] >= self._batch_bytes:
            self.flush()

    def flush(self) -> None:
        found = defaultdict(set)
        for offset, ngram in self._matcher.find(SEPARATOR.join(self._batch)):
            found[bisect_right(self._starts, offset) - 1].add(ngram)
        for number, ngrams in sorted(found.items()):
            self.tally.found |= ngrams
            matches = self._matches(self._rows[number], ngrams)
            for match in matches:
                self.tally.add(match)
            problems = {self._index.texts[match.text].problem for match in matches}
            self.tally.hit_documents.update(problems)
        self._reset()

    def _reset(self) -> None:
        self._batch: list[bytes] = []
        self._rows: list[int] = []
        self._starts = [0]

    def _matches(self, row: int, ngrams: set[int]) -> list[Match]:
        by_text = defaultdict(list)
        for ngram in sorted(ngrams):
            for text in self._texts_of(ngram):
                by_text[text].append(ngram)
        return [
            Match(len(found) / self._ngram_counts[text], text, self._path, row, tuple(found))
            for text, found in by_text.items()
        ]
