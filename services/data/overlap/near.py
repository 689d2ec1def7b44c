"""Near-duplicate detection: MinHash LSH finds candidates, the exact Jaccard index confirms."""

from collections.abc import Iterator, Sequence

import numpy as np
from datasketch import MinHash, MinHashLSH

from services.data.ngrams import Hashes, ngram_hashes
from services.data.overlap.pairs import Similarities, check_number
from services.data.overlap.views import Views

# Minimum Jaccard index of two sets of shingles, which are runs of so many words. Of copies of
# HumanEval, MBPP and 40 problems of CodeContests with changed names, headings or layout, 96 of 100
# are found; no two different questions of these sets reach the threshold.
THRESHOLD, SHINGLE_WORDS = 0.77, 3
_PERMUTATIONS = 128
# Minimum words; with fewer, a single word would decide.
_MIN_PROSE = 7
# Probability that two texts whose similarity is the threshold become candidates.
_CANDIDATE_CHANCE = 0.99
_LOW_BITS = np.uint64(0xFFFFFFFF)
# Shingle sets of a text for one criterion: all of them must be similar, and the first one
# determines the candidates. Empty if the criterion does not apply to the text.
_ShingleSets = tuple[Hashes, ...]


def near_pairs(texts: Sequence[Views], max_pairs: int) -> Similarities:
    """Find the pairs that are near duplicates by at least one criterion.

    Raises:
        DataError: There are more than ``max_pairs``.
    """
    found: Similarities = {}
    for criterion in (_by_prose, _by_named):
        sets = [criterion(text) for text in texts]
        for pair in _candidates([one[0] if one else None for one in sets]):
            similarity = _similarity(sets[pair[0]], sets[pair[1]])
            if similarity >= THRESHOLD:
                found[pair] = max(similarity, found.get(pair, 0.0))
                check_number(len(found), max_pairs)
    return found


def shingles(words: Hashes) -> Hashes:
    """Hash the set of runs of ``SHINGLE_WORDS`` words, sorted; a shorter text is one run."""
    return np.unique(ngram_hashes(words, max(1, min(SHINGLE_WORDS, len(words)))))


def jaccard(a: Hashes, b: Hashes) -> float:
    """Jaccard index: size of the intersection over size of the union; neither has repeats."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    either = len(a) + len(b) - both
    return both / either if either else 1.0


def _by_prose(text: Views) -> _ShingleSets:
    if len(text.prose) < 2 * _MIN_PROSE:
        # Texts with almost no prose are compared by all words, including numbers and signs.
        return shingles(text.words), shingles(text.prose)
    return (shingles(text.prose),)


def _by_named(text: Views) -> _ShingleSets:
    # Some different questions about the same sample data differ in one word; others, with masked
    # names, only in numbers. So both views must be similar.
    if not len(text.named):
        return ()
    return shingles(text.named), shingles(text.named_prose)


def _similarity(a: _ShingleSets, b: _ShingleSets) -> float:
    if len(a) != len(b):
        return 0.0
    return min(jaccard(one, other) for one, other in zip(a, b, strict=True))


def _candidates(sets: Sequence[Hashes | None]) -> Iterator[tuple[int, int]]:
    empty = MinHash(_PERMUTATIONS, hashfunc=int)
    index = MinHashLSH(num_perm=_PERMUTATIONS, params=_bands())
    for position, members in enumerate(sets):
        if members is None:
            continue
        sketch = empty.copy()
        sketch.update_batch((members & _LOW_BITS).tolist())
        for earlier in index.query(sketch):
            yield earlier, position
        index.insert(position, sketch, check_duplication=False)


def _bands() -> tuple[int, int]:
    """Choose the number and length of a sketch's bands, with as few candidates as possible.

    Texts of Jaccard index s share one of b bands of r values with probability 1 - (1 - s^r)^b
    (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4.2).
    """
    for rows in range(_PERMUTATIONS // 2, 1, -1):
        bands = _PERMUTATIONS // rows
        if 1 - (1 - THRESHOLD**rows) ** bands >= _CANDIDATE_CHANCE:
            return bands, rows
    return _PERMUTATIONS, 1
