import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.overlap.find import common_shares


def shares(texts, problems, max_problems=10, min_share=0.01):
    ngrams = [np.array(sorted(text), dtype=np.uint64) for text in texts]
    return common_shares(ngrams, np.array(problems, dtype=np.int64), max_problems, min_share)


def by_comparing(texts, problems, max_problems, min_share):
    """All pairs, one by one."""
    found = {}
    for left, one in enumerate(texts):
        for right, other in enumerate(texts[:left]):
            common = {
                ngram
                for ngram in one & other
                if len({p for text, p in zip(texts, problems, strict=True) if ngram in text})
                <= max_problems
            }
            pair = problems[right], problems[left]
            share = len(common) / max(1, min(len(one), len(other)))
            if pair[0] != pair[1] and share >= min_share:
                found[pair] = max(share, found.get(pair, 0))
    return found


texts_of_problems = st.lists(
    st.lists(st.sets(st.integers(0, 12), max_size=8), max_size=3), max_size=6
)


@given(texts_of_problems, st.integers(2, 5), st.sampled_from([0.1, 0.5, 1]))
def test_the_index_finds_what_comparing_all_pairs_finds(problems, max_problems, min_share):
    texts = [text for solutions in problems for text in solutions]
    owners = [number for number, solutions in enumerate(problems) for _ in solutions]
    expected = by_comparing(texts, owners, max_problems, min_share)
    assert shares(texts, owners, max_problems, min_share) == pytest.approx(expected)
