"""Search of documents for the n-grams of an index."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.data.contamination.corpus import Document
from services.data.contamination.index import Index, Sieve, View
from services.data.contamination.texts import may_have_code, unescape, words_of
from services.data.tokens import CodeTokens, plain_code, tokenize_code

# Between two texts of a document; no problem has it as a word or token.
_SEAM = "\n\0\n"


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
        known = self.best.get(match.text)
        if known is None or match.share > known.share:
            self.best[match.text] = match


class Matcher:
    """Finds the texts of an index in documents."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._sieves = {sieve.view: sieve for sieve in index.sieves}
        self._positions = [dict(zip(text.keys, text.starts, strict=True)) for text in index.texts]

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
            tally.hits.update({self._index.texts[match.text].problem for match in matches})
        return tally

    def _matches(self, path: str, row: int, texts: Sequence[str]) -> Iterator[Match]:
        places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, number, key in self._ngrams(texts):
            for text in self._index.postings[number]:
                places[text].append((at, self._positions[text][key]))
        for number, hits in places.items():
            chosen = _densest(sorted(hits), self._index.texts[number].span)
            share = len(chosen) / self._index.counts[number]
            yield Match(share, number, path, row, tuple(sorted(chosen)))

    def _ngrams(self, texts: Sequence[str]) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position in the document, number, key) of every n-gram."""
        number_of = self._index.words.get
        words = [word for text in texts for word in (*words_of(text), b"\0")]
        items = np.array([number_of(word, 0) for word in words], np.uint64)
        for view in (View.WORDS, View.PHRASES):
            if sieve := self._sieves.get(view):
                yield from _of_items(sieve, items)
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
            for at, number, key in _of_items(sieve, tokens.numbers):
                # A longer program may begin with the same tokens.
                if tokens.ends[at + len(key) // 8 - 1]:
                    yield at, number, key


def _of_items(sieve: Sieve, items: np.ndarray) -> Iterator[tuple[int, int, bytes]]:
    for at in sieve.candidates(items):
        for length, ngrams in sieve.ngrams.items():
            key = items[at : at + length].tobytes()
            if key in ngrams:
                yield at, ngrams[key], key


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
