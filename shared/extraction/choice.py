"""Extraction policy: choosing the answer among the fenced blocks of a completion.

``last``, the default, chooses the last complete block that is a candidate:

- If the entry point is known and a Python block defines it, only blocks that define it are
  candidates. Otherwise a Python block is a candidate if it could run alone: it is not sample
  output, an interpreter session, a fragment, or an example or test of what only an earlier block
  defines. A block that does not parse is a candidate if it defines anything or reads input.
- A C++ block is a candidate if it includes a header or begins ``main``.
- A block in any other language is always a candidate.

``first`` chooses the first candidate.

``substance`` chooses the last of the blocks with the most substance. Python blocks are ranked: they
define the entry point; define anything or read input; have statements; have only values; do not
parse. In other languages this policy is the same as ``last``.

Blocks labelled with the language take precedence over blocks without a label. An unclosed block is
chosen only if no complete block is a candidate, but before complete blocks that are not candidates.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shared.extraction.fences import Block
from shared.extraction.languages import Language, looks_like_cpp
from shared.extraction.python_source import (
    Substance,
    apparent_names,
    dedent_program,
    free_names,
    parse,
    returns_at_top,
    substance,
)
from shared.statuses import ExtractionPolicy, ExtractionReason

_DEFINITION_OR_INPUT = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w+.*:)|\binput[ \t]*\(|\bstdin\b",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Extraction:
    """The code found in a completion.

    Attributes:
        start: Character offset of the code in the text; None if the code is not one contiguous part
            of it.
    """

    code: str
    reason: ExtractionReason
    start: int | None = field(default=None, compare=False)

    @property
    def found(self) -> bool:
        return self.reason not in (ExtractionReason.NO_CODE_BLOCK, ExtractionReason.EMPTY)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A block in the wanted language; ``fit`` means that it can be the answer."""

    code: str
    block: Block
    fit: bool
    rank: Substance = Substance.STATEMENTS

    @property
    def closed(self) -> bool:
        return self.block.closed

    @property
    def labelled(self) -> bool:
        return bool(self.block.label)


_TIERS: tuple[tuple[Callable[[_Candidate], bool], ExtractionReason], ...] = (
    (lambda c: c.closed and c.labelled and c.fit, ExtractionReason.FENCED),
    (lambda c: c.closed and not c.labelled and c.fit, ExtractionReason.UNLABELLED),
    (lambda c: not c.closed and (c.labelled or c.fit), ExtractionReason.UNCLOSED_FENCE),
    (lambda c: c.closed and c.labelled, ExtractionReason.FENCED),
    (lambda c: not c.closed, ExtractionReason.UNCLOSED_FENCE),
    (lambda c: True, ExtractionReason.UNLABELLED),
)


def choose(
    blocks: Sequence[Block], language: Language, entry_point: str | None, policy: ExtractionPolicy
) -> Extraction | None:
    """Choose one block; None if no block is in the language."""
    candidates = _find_candidates(blocks, language, entry_point)
    if policy == ExtractionPolicy.SUBSTANCE and language.is_python:
        candidates = [
            replace(c, fit=c.labelled or c.rank >= Substance.STATEMENTS) for c in candidates
        ]
    for belongs, reason in _TIERS:
        tier = [candidate for candidate in candidates if belongs(candidate)]
        if tier:
            chosen = _pick(tier, policy)
            return Extraction(chosen.code, reason, chosen.block.start)
    return None


def _pick(candidates: Sequence[_Candidate], policy: ExtractionPolicy) -> _Candidate:
    if policy == ExtractionPolicy.FIRST:
        return candidates[0]
    if policy == ExtractionPolicy.SUBSTANCE:
        most = max(candidate.rank for candidate in candidates)
        candidates = [candidate for candidate in candidates if candidate.rank is most]
    return candidates[-1]


def _find_candidates(
    blocks: Sequence[Block], language: Language, entry_point: str | None
) -> list[_Candidate]:
    """Assess all blocks that are not empty and have the language's label or no label."""
    blocks = [b for b in blocks if b.code.strip() and (not b.label or language.owns(b.label))]
    if language.is_python:
        return _python_candidates(blocks, entry_point)
    fit = looks_like_cpp if language.is_cpp else bool
    return [_Candidate(b.code, b, fit(b.code)) for b in blocks]


def _python_candidates(blocks: Sequence[Block], entry_point: str | None) -> list[_Candidate]:
    programs = [dedent_program(block.code) for block in blocks]
    fits = [entry_point in apparent_names(*program) for program in programs]
    if not any(fits):
        fits = list(_can_run_alone(programs))
    return [
        _Candidate(code, block, fit, substance(tree, entry_point))
        for block, (code, tree), fit in zip(blocks, programs, fits, strict=True)
    ]


def _can_run_alone(programs: Sequence[tuple[str, ast.Module | None]]) -> Iterator[bool]:
    defined_before: set[str] = set()
    for code, tree in programs:
        yield _is_self_contained(tree, defined_before) if tree else _is_attempt(code)
        defined_before |= apparent_names(code, tree)


def _is_attempt(broken: str) -> bool:
    """Whether a text that does not parse appears to be meant as a program."""
    if broken.lstrip().startswith(">>>"):
        return False
    if broken.lstrip("\n")[:1] in (" ", "\t") and parse(textwrap.dedent(broken)):
        return False  # a fragment of a function
    return _DEFINITION_OR_INPUT.search(broken) is not None


def _is_self_contained(tree: ast.Module, defined_before: set[str]) -> bool:
    rank = substance(tree)
    if rank <= Substance.VALUES or returns_at_top(tree):
        return False
    missing = free_names(tree)
    # A program that uses undefined names is wrong, but it may still be the answer.
    return not (missing & defined_before if rank >= Substance.ANSWER else missing)
