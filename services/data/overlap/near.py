"""Near copies: MinHash finds candidates, the Jaccard index of their shingles decides."""

from collections.abc import Iterator, Sequence

import numpy as np
from datasketch import MinHash, MinHashLSH

from services.data.config import NearConfig
from services.data.overlap.pairs import Similarities, check_number
from services.data.overlap.views import Views
from services.data.text.ngrams import Hashes, ngram_hashes

# Words: with fewer, one more or less decides.
_MIN_PROSE = 7
_MIN_BESIDE_CODE = 15
# Different words of prose. Of the public sets' problems, two about different things have at most
# 0.48 of them in common from this number on, and 0.82 with fewer.
_MIN_VOCABULARY = 30
# The chance, at the threshold, that two texts become candidates.
_CANDIDATE_CHANCE = 0.99
_LOW_BITS = np.uint64(0xFFFFFFFF)
# Sets of shingles of a text in one way of reading: all have to be alike, the first one gives the
# candidates. Empty where this way says nothing of the text.
_Reading = tuple[Hashes, ...]


def near_pairs(texts: Sequence[Views], config: NearConfig) -> Similarities:
    """Find the pairs that are near copies in any way of reading them.

    Raises:
        DataError: There are too many.
    """
    found: Similarities = {}
    for reading in (_by_prose, _by_vocabulary, _by_named, _beside_code, _by_words):
        sets = [reading(text, config) for text in texts]
        for pair in _candidates([one[0] if one else None for one in sets], config):
            similarity = _similarity(sets[pair[0]], sets[pair[1]])
            if similarity >= config.threshold:
                found[pair] = max(similarity, found.get(pair, 0.0))
                check_number(len(found))
    return found


def shingles(words: Hashes, size: int) -> Hashes:
    """The set of runs of ``size`` words, sorted; a shorter text is one run."""
    return np.unique(ngram_hashes(words, max(1, min(size, len(words)))))


def jaccard(a: Hashes, b: Hashes) -> float:
    """Size of the intersection over size of the union; neither has repeats."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    either = len(a) + len(b) - both
    return both / either if either else 1.0


def _by_prose(text: Views, config: NearConfig) -> _Reading:
    if len(text.prose) < _MIN_PROSE:
        return ()
    return (shingles(text.prose, config.shingle_words),)


def _by_vocabulary(text: Views, config: NearConfig) -> _Reading:
    # Holds where words are put in all over a text, such as longer names for its variables.
    vocabulary = shingles(text.prose, 1)
    return (vocabulary,) if len(vocabulary) >= _MIN_VOCABULARY else ()


def _by_named(text: Views, config: NearConfig) -> _Reading:
    # Two questions about the same sample data differ in one word of many, and with the names gone
    # numbers are what tells others apart: so both views have to agree.
    if not len(text.named):
        return ()
    size = config.shingle_words
    return shingles(text.named, size), shingles(text.named_prose, size)


def _beside_code(text: Views, config: NearConfig) -> _Reading:
    if len(text.beside_code) < _MIN_BESIDE_CODE:
        return ()
    return (shingles(text.beside_code, config.shingle_words),)


def _by_words(text: Views, config: NearConfig) -> _Reading:
    # What has next to no prose is left to all of its words, numbers and signs among them.
    if not len(text.words) or len(text.prose) >= 2 * _MIN_PROSE:
        return ()
    size = config.shingle_words
    return shingles(text.words, size), shingles(text.prose, size)


def _similarity(a: _Reading, b: _Reading) -> float:
    return min(jaccard(one, other) for one, other in zip(a, b, strict=True))


def _candidates(sets: Sequence[Hashes | None], config: NearConfig) -> Iterator[tuple[int, int]]:
    empty = MinHash(config.permutations, seed=config.seed, hashfunc=int)
    index = MinHashLSH(num_perm=config.permutations, params=_bands(config))
    for position, members in enumerate(sets):
        if members is None:
            continue
        sketch = empty.copy()
        sketch.update_batch((members & _LOW_BITS).tolist())
        for earlier in index.query(sketch):
            yield earlier, position
        index.insert(position, sketch, check_duplication=False)


def _bands(config: NearConfig) -> tuple[int, int]:
    """Number and length of the bands of a sketch, as few candidates as the chance allows.

    Texts of Jaccard index s share one of b bands of r values with the chance 1 - (1 - s^r)^b
    (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4.2).
    """
    for rows in range(config.permutations // 2, 1, -1):
        bands = config.permutations // rows
        if 1 - (1 - config.threshold**rows) ** bands >= _CANDIDATE_CHANCE:
            return bands, rows
    return config.permutations, 1
