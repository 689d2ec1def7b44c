"""Shared n-grams of all pairs of texts, counted through one inverted index."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.data.ngrams import Hashes
from services.data.overlap.pairs import MAX_PAIRS, Similarities, check_number

Positions = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int32]


def common_shares(
    texts: Sequence[Hashes],
    problems: Positions,
    max_problems: int,
    min_share: float,
    max_pairs: int = MAX_PAIRS,
) -> Similarities:
    """Find pairs of problems whose texts share many n-grams.

    Args:
        texts: The n-grams of each text, without repeats.
        problems: For each text, the position of its problem; ascending.
        max_problems: N-grams of more problems than this never count as common.
        min_share: Minimum number of common n-grams, as a share of the shorter text's.
        max_pairs: Limit of the result.

    Returns:
        For each pair the largest share of any two of its texts.

    Raises:
        DataError: There are more than ``max_pairs``.
    """
    found: Similarities = {}
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    left, right, common = _count_common(texts, problems, max_problems)
    shares = common / np.minimum(sizes[left], sizes[right])
    enough = shares >= min_share
    for one, other, share in zip(
        problems[left[enough]].tolist(),
        problems[right[enough]].tolist(),
        shares[enough].tolist(),
        strict=True,
    ):
        found[one, other] = max(share, found.get((one, other), 0.0))
        check_number(len(found), max_pairs)
    return found


def _count_common(
    texts: Sequence[Hashes], problems: Positions, max_problems: int
) -> tuple[Positions, Positions, Positions]:
    """Count the common n-grams of each pair of texts of different problems; omits empty pairs."""
    holders, groups = _postings(texts, problems, max_problems)
    pairs, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    # One round per distance within the list of an n-gram's texts.
    for distance in range(1, int(np.bincount(groups).max(initial=1))):
        same = groups[:-distance] == groups[distance:]
        left, right = holders[:-distance][same].astype(np.int64), holders[distance:][same]
        apart = problems[left] != problems[right]
        found, count = np.unique(left[apart] * len(texts) + right[apart], return_counts=True)
        pairs.append(found)
        counts.append(count)
    codes, where = np.unique(np.concatenate(pairs), return_inverse=True)
    totals = np.bincount(where, weights=np.concatenate(counts), minlength=len(codes))
    return codes // len(texts), codes % len(texts), totals.astype(np.int64)


def _postings(
    texts: Sequence[Hashes], problems: Positions, max_problems: int
) -> tuple[_Numbers, _Numbers]:
    """Build the inverted index: the texts of each n-gram that 2 to ``max_problems`` problems have.

    Returns:
        Parallel arrays of texts and n-gram numbers, sorted by n-gram, then by text.
    """
    per_problem = int(np.bincount(problems).max(initial=1))
    repeated = _repeated(texts, max_problems * per_problem)
    # Half the width halves the memory of the largest arrays here.
    kept = [
        np.searchsorted(repeated, text[_is_in(text, repeated)]).astype(np.int32) for text in texts
    ]
    groups = np.concatenate([*kept, np.empty(0, np.int32)])
    sizes = [len(text) for text in kept]
    holders = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
    order = np.argsort(groups, kind="stable")
    groups, holders = groups[order], holders[order]
    spread = _count_problems(groups, problems[holders], len(repeated))
    own = ((spread >= 2) & (spread <= max_problems))[groups]
    return holders[own], groups[own]


def _repeated(texts: Sequence[Hashes], most: int) -> Hashes:
    """Select the n-grams that 2 to ``most`` texts have, sorted; this drops the majority early."""
    ngrams = np.concatenate([*texts, np.empty(0, np.uint64)])
    ngrams.sort()
    starts = np.flatnonzero(np.r_[True, ngrams[1:] != ngrams[:-1]][: len(ngrams)])
    counts = np.diff(starts, append=len(ngrams))
    return ngrams[starts[(counts >= 2) & (counts <= most)]]


def _is_in(ngrams: Hashes, among: Hashes) -> npt.NDArray[np.bool_]:
    if not len(among):
        return np.zeros(len(ngrams), dtype=np.bool_)
    nearest = among[np.minimum(np.searchsorted(among, ngrams), len(among) - 1)]
    return np.equal(nearest, ngrams)


def _count_problems(groups: _Numbers, problems: Positions, number: int) -> Positions:
    """Count the problems of each group; entries are sorted by group, then by problem."""
    same = (groups[1:] == groups[:-1]) & (problems[1:] == problems[:-1])
    another = np.r_[True, ~same][: len(groups)]
    return np.bincount(groups[another], minlength=number)
