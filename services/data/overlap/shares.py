"""Shared n-grams of all pairs of texts, counted through one inverted index."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from services.data.ngrams import Hashes
from services.data.overlap.pairs import MAX_PAIRS, Similarities, check_number


def common_shares(
    texts: Sequence[Hashes],
    problems: npt.NDArray[np.int64],
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
    sizes = np.array([len(text) for text in texts], np.int64)
    if not sizes.sum():
        return {}
    postings = pd.DataFrame(
        {"ngram": np.concatenate(texts), "text": np.repeat(np.arange(len(texts)), sizes)}
    )
    postings = postings[postings.duplicated("ngram", keep=False)]
    postings["problem"] = problems[postings["text"]]
    holders = postings.drop_duplicates(["ngram", "problem"])["ngram"].value_counts()
    own = holders.index[(holders >= 2) & (holders <= max_problems)]
    postings = postings[postings["ngram"].isin(own)]
    pairs = postings.merge(postings, on="ngram")
    pairs = pairs[pairs["problem_x"] < pairs["problem_y"]]
    common = pairs.groupby(["text_x", "text_y"], as_index=False).size()
    smaller = np.minimum(sizes[common["text_x"]], sizes[common["text_y"]])
    common["share"] = common["size"] / smaller
    common = common[common["share"] >= min_share]
    one, other = problems[common["text_x"]], problems[common["text_y"]]
    shares = common.groupby([one, other])["share"].max()
    check_number(len(shares), max_pairs)
    return {(int(a), int(b)): float(share) for (a, b), share in shares.items()}
