"""Overlap detection: finds duplicate and similar problems within and between data sets."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np

from services.data.ngrams import Hashes, ngram_hashes
from services.data.overlap.near import near_pairs
from services.data.overlap.pairs import (
    MAX_PAIRS,
    Overlap,
    OverlapFinding,
    OverlapKind,
    OverlapSide,
    ProblemText,
    Similarities,
    check_number,
)
from services.data.overlap.shares import common_shares
from services.data.overlap.views import Views, views_of
from services.data.tokens import plain_code, tokenize_code

# Words per n-gram, and n-grams that a text needs to be compared.
SIZE, _MIN_NGRAMS = 13, 20
# A pair overlaps if this share of the shorter text's n-grams is in the other one. In the data sets
# of `near`, different problems share up to 0.30 of their prompts' n-grams (0.81 for short prompts)
# and up to 0.93 of their solutions' n-grams (all of them for shorter solutions).
MIN_SHARE, _MIN_WHOLE_SHARE, MIN_SOLUTION_SHARE = 0.4, 0.9, 0.95
# N-grams in more problems than this are common phrases and never count as shared.
_MAX_PROBLEMS = 10
_EXCERPT_CHARACTERS, _COMPARED_WORDS = 160, 1000


def find_overlaps(texts: Sequence[ProblemText], max_pairs: int = MAX_PAIRS) -> list[Overlap]:
    """Find all pairs of problems that are duplicates or similar.

    The result does not depend on the order of the texts or on the machine.

    Returns:
        One entry per pair, sorted by the names of the problems.

    Raises:
        DataError: There are more than ``max_pairs``, too many to review.
    """
    problems = sorted(texts, key=_sort_key)
    views = [views_of(problem.prompt) for problem in problems]
    found = {
        OverlapKind.EXACT: _exact(problems, max_pairs),
        OverlapKind.NEAR: near_pairs(views, max_pairs),
        OverlapKind.PROMPT_NGRAMS: _prompt_ngrams(views, max_pairs),
        OverlapKind.SOLUTION_NGRAMS: _solution_ngrams(problems, max_pairs),
    }
    pairs: dict[tuple[int, int], list[OverlapFinding]] = defaultdict(list)
    for kind, similarities in found.items():
        for pair, similarity in similarities.items():
            pairs[pair].append(OverlapFinding(kind, similarity))
    return [_overlap(problems[a], problems[b], pairs[a, b]) for a, b in sorted(pairs)]


def _sort_key(problem: ProblemText) -> tuple[object, ...]:
    named = (problem.dataset, problem.split, problem.problem_id, problem.prompt_sha256)
    return (*named, problem.prompt, problem.solutions, problem.role)


def _exact(problems: Sequence[ProblemText], max_pairs: int) -> Similarities:
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.prompt_sha256].append(position)
    check_number(sum(len(group) * (len(group) - 1) // 2 for group in groups.values()), max_pairs)
    return {pair: 1.0 for group in groups.values() for pair in combinations(group, 2)}


def _prompt_ngrams(prompts: Sequence[Views], max_pairs: int) -> Similarities:
    parts = [_ngrams(prompt.prose, _MIN_NGRAMS) for prompt in prompts]
    found = _shares(parts, MIN_SHARE, max_pairs)
    # Sample data may be half of a short prompt, and different questions about the same data may
    # differ in one word. So a short prompt must be almost completely contained in the other one.
    for view in ("words", "named"):
        wholes = [_ngrams(getattr(prompt, view)) for prompt in prompts]
        for pair, share in _shares(wholes, _MIN_WHOLE_SHARE, max_pairs).items():
            found[pair] = max(share, found.get(pair, 0.0))
    return found


def _shares(texts: Sequence[Hashes], min_share: float, max_pairs: int) -> Similarities:
    return common_shares(texts, np.arange(len(texts)), _MAX_PROBLEMS, min_share, max_pairs)


def _solution_ngrams(problems: Sequence[ProblemText], max_pairs: int) -> Similarities:
    owners = np.repeat(np.arange(len(problems)), [len(problem.solutions) for problem in problems])
    texts = [
        _ngrams(_code_items(solution), _MIN_NGRAMS)
        for problem in problems
        for solution in problem.solutions
    ]
    return common_shares(texts, owners, _MAX_PROBLEMS, MIN_SOLUTION_SHARE, max_pairs)


def _code_items(code: str) -> Hashes:
    """Compute a number per token; a name is its distance from its previous occurrence."""
    tokens = tokenize_code(plain_code(code))
    distances = np.where(tokens.distances < SIZE, tokens.distances, 0)
    return np.where(tokens.names, distances, tokens.numbers)


def _ngrams(words: Hashes, at_least: int = 1) -> Hashes:
    """Compute the set of n-grams; empty if there are fewer than ``at_least``."""
    found = np.unique(ngram_hashes(words, SIZE))
    return found if len(found) >= at_least else found[:0]


def _overlap(a: ProblemText, b: ProblemText, findings: Iterable[OverlapFinding]) -> Overlap:
    found = tuple(findings)
    by_code = all(finding.kind is OverlapKind.SOLUTION_NGRAMS for finding in found)
    of_a, of_b = (_code(a), _code(b)) if by_code else (a.prompt, b.prompt)
    excerpt_a, excerpt_b = excerpts(of_a, of_b)
    return Overlap(_side(a, excerpt_a), _side(b, excerpt_b), found)


def _code(problem: ProblemText) -> str:
    return "\n".join(problem.solutions)


def _side(problem: ProblemText, excerpt: str) -> OverlapSide:
    return OverlapSide(problem.dataset, problem.split, problem.role, problem.problem_id, excerpt)


def excerpts(a: str, b: str) -> tuple[str, str]:
    """Return a line of each text around the longest run of common words."""
    texts = a.split()[:_COMPARED_WORDS], b.split()[:_COMPARED_WORDS]
    lowered = [["".join(filter(str.isalnum, word.lower())) for word in words] for words in texts]
    run = SequenceMatcher(None, lowered[0], lowered[1], autojunk=False).find_longest_match()
    return _cut(texts[0], run.a), _cut(texts[1], run.b)


def _cut(words: list[str], at: int) -> str:
    # A word longer than an excerpt is truncated to that length.
    shown = words[max(0, at - 2) :][: _EXCERPT_CHARACTERS // 2]
    line = " ".join(word[:_EXCERPT_CHARACTERS] for word in shown)
    printable = line.encode("utf-8", "replace").decode("utf-8")
    if len(printable) <= _EXCERPT_CHARACTERS:
        return printable
    return printable[: _EXCERPT_CHARACTERS - 1] + "…"
