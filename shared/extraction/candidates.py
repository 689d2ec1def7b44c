"""Which blocks of a completion can be its answer."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.extraction.bare_text import dedent_program
from shared.extraction.fences import Block
from shared.extraction.languages import Language, looks_like_cpp
from shared.extraction.names import apparent_names, free_names
from shared.extraction.python_source import Substance, parse, returns_at_top, substance

_DEFINITION_OR_INPUT = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w+.*:)|\binput[ \t]*\(|\bstdin\b",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A block in the wanted language; ``fit`` if it can be the answer."""

    code: str
    labelled: bool
    closed: bool
    fit: bool
    rank: Substance = Substance.STATEMENTS


def find_candidates(
    blocks: Sequence[Block], language: Language, entry_point: str | None
) -> list[Candidate]:
    """Judge the blocks that are in the language, or without a label, and hold anything."""
    blocks = [b for b in blocks if b.code.strip() and (not b.label or language.owns(b.label))]
    if language.is_python:
        return _python_candidates(blocks, entry_point)
    fit = looks_like_cpp if language.is_cpp else bool
    return [Candidate(b.code, bool(b.label), b.closed, fit(b.code)) for b in blocks]


def _python_candidates(blocks: Sequence[Block], entry_point: str | None) -> list[Candidate]:
    programs = [dedent_program(block.code) for block in blocks]
    fits = [entry_point in apparent_names(*program) for program in programs]
    if not any(fits):
        fits = list(_can_run_alone(programs))
    return [
        Candidate(code, bool(block.label), block.closed, fit, substance(tree, entry_point))
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
