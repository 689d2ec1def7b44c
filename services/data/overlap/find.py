"""Finds the problems that overlap, within a data set and between data sets."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from services.data.config import ChecksConfig, NgramConfig
from services.data.overlap.code import code_tokens
from services.data.overlap.excerpts import excerpts
from services.data.overlap.near import near_pairs
from services.data.overlap.pairs import (
    Finding,
    Kind,
    Overlap,
    Side,
    Similarities,
    check_number,
)
from services.data.overlap.shares import common_shares
from services.data.overlap.texts import ProblemText
from services.data.overlap.views import Views, views_of
from services.data.text.ngrams import Hashes, ngram_hashes, word_hashes


def find_overlaps(texts: Sequence[ProblemText], checks: ChecksConfig) -> list[Overlap]:
    """Find all pairs of problems that are copies of one another, or have much in common.

    The result depends neither on the order of the texts nor on the machine.

    Returns:
        One entry for each pair, by the names of the problems.

    Raises:
        DataError: There are more pairs than anybody could look at.
    """
    problems = sorted(texts, key=_place)
    views = [views_of(problem.prompt) for problem in problems]
    found = {
        Kind.EXACT: _exact(problems),
        Kind.NEAR: near_pairs(views, checks.near),
        Kind.PROMPT_NGRAMS: _prompt_ngrams(views, checks.ngrams),
        Kind.SOLUTION_NGRAMS: _solution_ngrams(problems, checks.ngrams),
    }
    pairs: dict[tuple[int, int], list[Finding]] = defaultdict(list)
    for kind, similarities in found.items():
        for pair, similarity in similarities.items():
            pairs[pair].append(Finding(kind, similarity))
    return [_overlap(problems[a], problems[b], pairs[a, b]) for a, b in sorted(pairs)]


def _place(problem: ProblemText) -> tuple[object, ...]:
    named = (problem.dataset, problem.split, problem.problem_id, problem.prompt_sha256)
    return (*named, problem.prompt, problem.solutions, problem.role)


def _exact(problems: Sequence[ProblemText]) -> Similarities:
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.prompt_sha256].append(position)
    check_number(sum(len(group) * (len(group) - 1) // 2 for group in groups.values()))
    return {pair: 1.0 for group in groups.values() for pair in combinations(group, 2)}


def _prompt_ngrams(prompts: Sequence[Views], config: NgramConfig) -> Similarities:
    parts = [_ngrams(prompt.prose, config.size, config.min_ngrams) for prompt in prompts]
    found = _shares(parts, config.min_share, config)
    # Sample data makes half of a short prompt, and questions about the same data differ in a word:
    # so these have to be in the other as a whole.
    for view in ("words", "named"):
        wholes = [_ngrams(getattr(prompt, view), config.size) for prompt in prompts]
        for pair, share in _shares(wholes, config.min_whole_share, config).items():
            found[pair] = max(share, found.get(pair, 0.0))
    return found


def _shares(texts: Sequence[Hashes], min_share: float, config: NgramConfig) -> Similarities:
    return common_shares(texts, np.arange(len(texts)), config.max_problems, min_share)


def _solution_ngrams(problems: Sequence[ProblemText], config: NgramConfig) -> Similarities:
    owners = np.repeat(np.arange(len(problems)), [len(problem.solutions) for problem in problems])
    texts = [
        _ngrams(word_hashes(code_tokens(solution, config.size)), config.size, config.min_ngrams)
        for problem in problems
        for solution in problem.solutions
    ]
    return common_shares(texts, owners, config.max_problems, config.min_solution_share)


def _ngrams(words: Hashes, size: int, at_least: int = 1) -> Hashes:
    """The set of n-grams; empty where there are fewer than ``at_least``."""
    found = np.unique(ngram_hashes(words, size))
    return found if len(found) >= at_least else found[:0]


def _overlap(a: ProblemText, b: ProblemText, findings: Iterable[Finding]) -> Overlap:
    found = tuple(findings)
    by_code = all(finding.kind is Kind.SOLUTION_NGRAMS for finding in found)
    of_a, of_b = (_code(a), _code(b)) if by_code else (a.prompt, b.prompt)
    excerpt_a, excerpt_b = excerpts(of_a, of_b)
    return Overlap(_side(a, excerpt_a), _side(b, excerpt_b), found)


def _code(problem: ProblemText) -> str:
    return "\n".join(problem.solutions)


def _side(problem: ProblemText, excerpt: str) -> Side:
    return Side(problem.dataset, problem.split, problem.role, problem.problem_id, excerpt)
