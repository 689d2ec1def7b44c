"""Choosing among the blocks of a completion.

``last``, the default: the last complete block that can be the answer. Where the entry point is
known and some Python block defines it, those can that define it. Else those can that could run by
themselves: no sample of output or of an interpreter session, no fragment, and no example or test
of what only an earlier block defines; one that does not parse if it defines anything or reads
input. Of C++ blocks those can that include a header or begin ``main``, of those in other languages
all.

``first`` is the same from the other end.

``substance``: the last of the blocks with the most substance. A Python block has most if it defines
the entry point, less if it defines anything or reads input, less if it does anything, less if it
is values, and least if it does not parse. In other languages this is ``last``.

Blocks labelled with the language come before those without a label. An unclosed block is taken only
where no complete one can be the answer, and a complete one that cannot be it before nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shared.extraction.candidates import Candidate, find_candidates
from shared.extraction.fences import Block
from shared.extraction.languages import Language
from shared.extraction.python_source import Substance
from shared.extraction.result import Extraction, ExtractionPolicy, Reason

_TIERS: tuple[tuple[Callable[[Candidate], bool], Reason], ...] = (
    (lambda c: c.closed and c.labelled and c.fit, Reason.FENCED),
    (lambda c: c.closed and not c.labelled and c.fit, Reason.UNLABELLED),
    (lambda c: not c.closed and (c.labelled or c.fit), Reason.UNCLOSED_FENCE),
    (lambda c: c.closed and c.labelled, Reason.FENCED),
    (lambda c: not c.closed, Reason.UNCLOSED_FENCE),
    (lambda c: True, Reason.UNLABELLED),
)


def choose(
    blocks: Sequence[Block], language: Language, entry_point: str | None, policy: ExtractionPolicy
) -> Extraction | None:
    """Take one block, or None where none is in the language."""
    candidates = find_candidates(blocks, language, entry_point)
    if policy == ExtractionPolicy.SUBSTANCE and language.is_python:
        candidates = [
            replace(c, fit=c.labelled or c.rank >= Substance.STATEMENTS) for c in candidates
        ]
    for belongs, reason in _TIERS:
        tier = [candidate for candidate in candidates if belongs(candidate)]
        if tier:
            return Extraction(_pick(tier, policy).code, reason)
    return None


def _pick(candidates: Sequence[Candidate], policy: ExtractionPolicy) -> Candidate:
    if policy == ExtractionPolicy.FIRST:
        return candidates[0]
    if policy == ExtractionPolicy.SUBSTANCE:
        most = max(candidate.rank for candidate in candidates)
        candidates = [candidate for candidate in candidates if candidate.rank is most]
    return candidates[-1]
