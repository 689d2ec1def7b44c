"""Clusters of problems: the contest that a problem is from, as far as its id tells.

Problems of one contest have one set of authors and one theme, and a model may know all of its
editorials or none, so their values are not independent (Miller 2024, "Adding error bars to evals",
section on clustered questions). Known are

- Codeforces: ``1575_A. Another Sorting Problem`` (CodeContests), ``1873_A`` (LiveCodeBench): the
  number before the letter;
- AtCoder: ``p02732 AtCoder Beginner Contest 159 - Banned K`` (CodeContests): the contest's title;
  ``abc301_a`` (LiveCodeBench): what is before the letter.

Every other problem (Aizu, CodeChef, HackerEarth, LeetCode, HumanEval, MBPP) is a cluster of its
own: nothing that a run keeps tells its contest.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_CODEFORCES = re.compile(r"(\d{1,5})_[A-Z]\d?(?![0-9A-Za-z_])")
_ATCODER_TITLE = re.compile(r"p\d{5} (.{1,200}?) - ")
_ATCODER_NUMBER = re.compile(r"((?:abc|arc|agc)\d{3})_[a-z]\d?(?![0-9A-Za-z_])")


def contest(problem_id: str) -> str | None:
    """The contest of a problem; None if the id does not tell."""
    for place, pattern in (
        ("codeforces", _CODEFORCES),
        ("atcoder", _ATCODER_TITLE),
        ("atcoder", _ATCODER_NUMBER),
    ):
        if found := pattern.match(problem_id):
            return f"{place} {found[1]}"
    return None


def contest_clusters(problem_ids: Sequence[str]) -> Ints | None:
    """Number the clusters of problems from 0, in the order of their first problems.

    Returns:
        The cluster of each problem; None if no two problems share one.
    """
    numbers: dict[tuple[str | None, str], int] = {}
    keys = ((contest(problem_id), problem_id) for problem_id in problem_ids)
    found = [
        numbers.setdefault((None, problem_id) if held is None else (held, ""), len(numbers))
        for held, problem_id in keys
    ]
    return np.array(found, dtype=np.int64) if len(numbers) < len(found) else None
