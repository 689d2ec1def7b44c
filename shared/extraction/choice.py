"""Extraction policy: choosing the answer among the fenced blocks of a completion.

``last``, the default: the last complete block that can be the answer. Where the entry point is
known and some Python block defines it, only the blocks that define it can. Otherwise a block can
if it could run by itself: no sample of output or of an interpreter session, no fragment, and no
example or test of what only an earlier block defines; one that does not parse if it defines
anything or reads input. C++ blocks can if they include a header or begin ``main``, blocks in other
languages always.

``first`` is the same from the other end.

``substance``: the last of the blocks with the most substance. A Python block has most if it defines
the entry point, less if it defines anything or reads input, less if it does anything, less if it
is values, and least if it does not parse. In other languages this is ``last``.

Blocks labelled with the language come before those without a label. An unclosed block is taken only
where no complete one can be the answer, and before complete ones that cannot.
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
    """The code that was found in a completion.

    Attributes:
        start: Character offset of the code in the text that was searched; None where the code is
            not one contiguous part of it.
    """

    code: str
    reason: ExtractionReason
    start: int | None = field(default=None, compare=False)

    @property
    def found(self) -> bool:
        return self.reason not in (ExtractionReason.NO_CODE_BLOCK, ExtractionReason.EMPTY)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A block in the wanted language; ``fit`` if it can be the answer."""

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
    """Take one block, or None where none is in the language."""
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
    """Assess the blocks that are in the language, or without a label, and not empty."""
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
    """Whether a text that does not parse was meant as a program."""
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
    # A program that uses what is defined nowhere is wrong, but may well be the answer.
    return not (missing & defined_before if rank >= Substance.ANSWER else missing)
