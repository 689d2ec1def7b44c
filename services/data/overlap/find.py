"""Overlap detection: finds duplicate and similar problems within and between data sets."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from services.data.config import ChecksConfig, NgramConfig
from services.data.ngrams import Hashes, ngram_hashes, word_hashes, words
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

# Excerpts
_RUN_WORDS = (5, 3, 1)
_EXCERPT_CHARACTERS = 160
_WORDS_BEFORE_RUN = 2


def find_overlaps(
    texts: Sequence[ProblemText], checks: ChecksConfig, max_pairs: int = MAX_PAIRS
) -> list[Overlap]:
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
        OverlapKind.NEAR: near_pairs(views, checks.near, max_pairs),
        OverlapKind.PROMPT_NGRAMS: _prompt_ngrams(views, checks.ngrams, max_pairs),
        OverlapKind.SOLUTION_NGRAMS: _solution_ngrams(problems, checks.ngrams, max_pairs),
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


def _prompt_ngrams(prompts: Sequence[Views], config: NgramConfig, max_pairs: int) -> Similarities:
    parts = [_ngrams(prompt.prose, config.size, config.min_ngrams) for prompt in prompts]
    found = _shares(parts, config.min_share, config, max_pairs)
    # Sample data may be half of a short prompt, and different questions about the same data may
    # differ in one word. So a short prompt must be almost completely contained in the other one.
    for view in ("words", "named"):
        wholes = [_ngrams(getattr(prompt, view), config.size) for prompt in prompts]
        for pair, share in _shares(wholes, config.min_whole_share, config, max_pairs).items():
            found[pair] = max(share, found.get(pair, 0.0))
    return found


def _shares(
    texts: Sequence[Hashes], min_share: float, config: NgramConfig, max_pairs: int
) -> Similarities:
    positions = np.arange(len(texts))
    return common_shares(texts, positions, config.max_problems, min_share, max_pairs)


def _solution_ngrams(
    problems: Sequence[ProblemText], config: NgramConfig, max_pairs: int
) -> Similarities:
    owners = np.repeat(np.arange(len(problems)), [len(problem.solutions) for problem in problems])
    texts = [
        _ngrams(_code_items(solution, config.size), config.size, config.min_ngrams)
        for problem in problems
        for solution in problem.solutions
    ]
    return common_shares(texts, owners, config.max_problems, config.min_solution_share, max_pairs)


def _code_items(code: str, reach: int) -> Hashes:
    """Compute a number per token; a name is its distance from its previous occurrence."""
    tokens = tokenize_code(plain_code(code))
    distances = np.where(tokens.distances < reach, tokens.distances, 0)
    return np.where(tokens.names, distances, tokens.numbers)


def _ngrams(words: Hashes, size: int, at_least: int = 1) -> Hashes:
    """Compute the set of n-grams; empty if there are fewer than ``at_least``."""
    found = np.unique(ngram_hashes(words, size))
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
    """Return a line of each text around the longest run of common words.

    Without a common word, the lines are the beginnings of the texts.
    """
    pieces_a, pieces_b = a.split(), b.split()
    hashes_a, hashes_b = _hashes(pieces_a), _hashes(pieces_b)
    for size in _RUN_WORDS:
        at = _longest_run(ngram_hashes(hashes_a, size), ngram_hashes(hashes_b, size))
        if at is not None:
            return _cut(pieces_a, at[0]), _cut(pieces_b, at[1])
    return _cut(pieces_a, 0), _cut(pieces_b, 0)


def _hashes(pieces: list[str]) -> Hashes:
    return word_hashes([b" ".join(words(piece)) for piece in pieces])


def _longest_run(a: Hashes, b: Hashes) -> tuple[int, int] | None:
    """Find the start of the longest run of common n-grams in each text."""
    _, in_a, in_b = np.intersect1d(a, b, return_indices=True)
    if not len(in_a):
        return None
    order = np.argsort(in_a)
    in_a, in_b = in_a[order], in_b[order]
    continues = (np.diff(in_a) == 1) & (np.diff(in_b) == 1)
    starts: npt.NDArray[np.intp] = np.flatnonzero(np.r_[True, ~continues])
    longest = starts[np.argmax(np.diff(np.r_[starts, len(in_a)]))]
    return int(in_a[longest]), int(in_b[longest])


def _cut(pieces: list[str], at: int) -> str:
    # A word longer than an excerpt is truncated to that length.
    begin = max(0, at - _WORDS_BEFORE_RUN)
    shown = pieces[begin : begin + _EXCERPT_CHARACTERS // 2]
    line = " ".join(piece[:_EXCERPT_CHARACTERS] for piece in shown)
    printable = line.encode("utf-8", "replace").decode("utf-8")
    if len(printable) <= _EXCERPT_CHARACTERS:
        return printable
    return printable[: _EXCERPT_CHARACTERS - 1] + "…"
