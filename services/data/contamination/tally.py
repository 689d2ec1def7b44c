"""What the documents of a part of a corpus have of evaluation problems."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from services.data.contamination.index import Index
from services.data.contamination.matching import SEPARATOR, Matcher
from services.data.text.words import fold

# Bytes. Larger ones are slower: their arrays no longer fit into the processor's cache.
_BATCH = 1 << 18
_CACHED = 1 << 15


@dataclass(frozen=True, slots=True)
class Document:
    """The texts of a row, line or passage; ``row`` is its number in the file, from 1."""

    row: int
    texts: Iterable[str]


@dataclass(frozen=True, slots=True)
class Match:
    """A document's n-grams of a problem's text; ``share`` is of those that count there."""

    share: float
    text: int
    path: str
    row: int
    ngrams: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """Sums over documents; ``texts`` are those that have a word.

    ``found`` has the n-grams that are anywhere, ``best`` the document with the highest share for
    each text of a problem, ``hit_documents`` the number of documents with any of a problem's.
    """

    documents: int = 0
    texts: int = 0
    found: set[int] = field(default_factory=set)
    best: dict[int, Match] = field(default_factory=dict)
    hit_documents: Counter[int] = field(default_factory=Counter)

    def add(self, match: Match) -> None:
        """Keep the higher share, and of equal ones that which came first."""
        known = self.best.get(match.text)
        if known is None or match.share > known.share:
            self.best[match.text] = match

    def merge(self, later: "Tally", rows: int) -> None:
        """Add what comes ``rows`` rows later."""
        self.documents += later.documents
        self.texts += later.texts
        self.found |= later.found
        self.hit_documents.update(later.hit_documents)
        for match in later.best.values():
            self.add(replace(match, row=match.row + rows))


def tally_documents(index: Index, path: str, documents: Iterable[Document]) -> Tally:
    """Look for the n-grams of the index in documents, many small ones at a time."""
    counter = _Counter(index, path)
    for document in documents:
        counter.add(document)
    counter.flush()
    return counter.tally


class _Counter:
    def __init__(self, index: Index, path: str) -> None:
        self.tally = Tally()
        self._index = index
        self._path = path
        self._matcher = Matcher(index)
        self._texts_of = lru_cache(_CACHED)(index.postings.texts_of)
        self._own = index.own.tolist()
        self._empty()

    def add(self, document: Document) -> None:
        texts = [fold(text) for text in document.texts]
        self.tally.documents += 1
        self.tally.texts += sum(bool(text) and not text.isspace() for text in texts)
        self._rows.append(document.row)
        self._batch.append(SEPARATOR.join(texts))
        self._starts.append(self._starts[-1] + len(self._batch[-1]) + len(SEPARATOR))
        if self._starts[-1] >= _BATCH:
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
        self._empty()

    def _empty(self) -> None:
        self._batch: list[bytes] = []
        self._rows: list[int] = []
        self._starts = [0]

    def _matches(self, row: int, ngrams: set[int]) -> list[Match]:
        by_text = defaultdict(list)
        for ngram in sorted(ngrams):
            for text in self._texts_of(ngram):
                by_text[text].append(ngram)
        return [
            Match(len(found) / self._own[text], text, self._path, row, tuple(found))
            for text, found in by_text.items()
        ]
