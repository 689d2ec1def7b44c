"""Extraction policy: choosing the answer among the code blocks of a completion.

``last``, the default, chooses the last complete block that is a candidate:

- If the names that the tests call are known and a Python block defines one, only blocks that define
  one are candidates: at top level rather than as a method, with content rather than as a stub or
  with parts left out ("# ... rest of the code").
- Otherwise a Python block is a candidate if it could run alone: it is not sample output, sample
  data, an interpreter session, a fragment, a stub, or an example or test of what only an earlier
  block defines. A block that does not parse is a candidate if it defines anything or reads input.
  Blocks that read standard input and print count more than others: only they are candidates, if
  there are any. Such a block may need functions or variables of earlier blocks that are no such
  program themselves.
- A C++ block is a candidate if it begins ``main``; if none does, if it includes a header.
- A block in any other language is always a candidate.

``first`` chooses the first candidate, whether it reads input or not.

``substance`` chooses the last of the blocks with the most substance. Python blocks are ranked: they
define the entry point; define anything or read input; have statements; have only values; do not
parse. In other languages this policy is the same as ``last``.

Blocks labelled with the language take precedence over blocks without a label. An unclosed block is
chosen only if no complete block is a candidate, but before complete blocks that are not candidates.

What the chosen block lacks is taken from other blocks (``shared.extraction.combination``).
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

from shared.extraction.combination import Providers, combine
from shared.extraction.cpp_source import combine_cpp, has_main, looks_like_cpp, read_cpp
from shared.extraction.fences import Block
from shared.extraction.languages import Language, defines_function
from shared.extraction.python_source import Substance, returns_at_top
from shared.extraction.snippet import Snippet, is_elided
from shared.statuses import ExtractionPolicy, ExtractionReason


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
class Choice:
    """A chosen block; ``sure`` is false if it was only better than nothing."""

    extraction: Extraction
    sure: bool


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A block in the wanted language; ``fit`` means that it can be the answer."""

    code: str
    block: Block
    fit: bool
    place: int
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
_SURE_TIERS = 3


def choose(
    blocks: Sequence[Block],
    language: Language,
    names: Set[str],
    policy: ExtractionPolicy,
) -> Choice | None:
    """Choose one block; None if no block is in the language.

    Args:
        blocks: All code blocks, in order.
        language: The wanted language.
        names: Names that the tests call; empty if unknown.
        policy: Policy for choosing one of several.
    """
    blocks = [b for b in blocks if b.code.strip() and (not b.label or language.owns(b.label))]
    group: _PythonBlocks | _OtherBlocks = _OtherBlocks(blocks, language, names)
    if language.is_python:
        group = _PythonBlocks(blocks, names, prefers_input=policy != ExtractionPolicy.FIRST)
    candidates = group.candidates()
    if policy == ExtractionPolicy.SUBSTANCE and language.is_python:
        candidates = [
            replace(c, fit=c.labelled or c.rank >= Substance.STATEMENTS) for c in candidates
        ]
    for number, (belongs, usual) in enumerate(_TIERS):
        tier = [candidate for candidate in candidates if belongs(candidate)]
        if tier:
            chosen = _pick(tier, policy)
            found = Extraction(chosen.code, chosen.block.reason or usual, chosen.block.start)
            if chosen.closed and (code := group.combine(chosen.place)):
                found = Extraction(code, ExtractionReason.COMBINED)
            return Choice(found, number < _SURE_TIERS and group.defines(chosen.place))
    return None


def _pick(candidates: Sequence[_Candidate], policy: ExtractionPolicy) -> _Candidate:
    if policy == ExtractionPolicy.FIRST:
        return candidates[0]
    if policy == ExtractionPolicy.SUBSTANCE:
        most = max(candidate.rank for candidate in candidates)
        candidates = [candidate for candidate in candidates if candidate.rank is most]
    return candidates[-1]


class _OtherBlocks:
    """Blocks in C++, or in a language that is not analysed."""

    def __init__(self, blocks: Sequence[Block], language: Language, names: Set[str]) -> None:
        self._blocks = blocks
        self._names = names
        self._cpp = language.is_cpp
        self._codes = [read_cpp(b.code) if self._cpp else b.code for b in blocks]

    def candidates(self) -> list[_Candidate]:
        return [
            _Candidate(code, block, fit, place)
            for place, (code, block, fit) in enumerate(
                zip(self._codes, self._blocks, self._fits(), strict=True)
            )
        ]

    def _fits(self) -> list[bool]:
        fits = [any(defines_function(code, name) for name in self._names) for code in self._codes]
        if any(fits) or not self._cpp:
            return fits if any(fits) else [True] * len(fits)
        whole = [has_main(code) and not is_elided(code) for code in self._codes]
        closed = [fit and b.closed for fit, b in zip(whole, self._blocks, strict=True)]
        return whole if any(closed) else [looks_like_cpp(code) for code in self._codes]

    def defines(self, place: int) -> bool:
        return not self._cpp or looks_like_cpp(self._codes[place])

    def combine(self, place: int) -> str | None:
        return combine_cpp(self._codes, place) if self._cpp else None


class _PythonBlocks:
    def __init__(self, blocks: Sequence[Block], names: Set[str], *, prefers_input: bool) -> None:
        self._blocks = blocks
        self._names = names
        self._prefers_input = prefers_input
        self._snippets = [_read(block) for block in blocks]
        self._providers = Providers.of(self._snippets, [block.closed for block in blocks])

    def candidates(self) -> list[_Candidate]:
        return [
            _Candidate(snippet.code, block, fit, place, snippet.substance(self._names))
            for place, (block, snippet, fit) in enumerate(
                zip(self._blocks, self._snippets, self._fits(), strict=True)
            )
        ]

    def defines(self, place: int) -> bool:
        """Whether a chosen block has a name that the tests call, if these are known."""
        return not self._names or bool(self._names & self._snippets[place].names)

    def combine(self, place: int) -> str | None:
        return combine(self._providers, place, self._names)

    def _fits(self) -> list[bool]:
        if self._names:
            for ranks in (self._defines_fully, self._has_method, self._defines_somehow):
                if any(fits := [ranks(snippet) for snippet in self._snippets]):
                    return fits
        fits = self._can_run()
        return fits if any(fits) else [s.session and bool(s.definitions) for s in self._snippets]

    def _defines_fully(self, snippet: Snippet) -> bool:
        found = self._names & snippet.callables
        return bool(found) and not snippet.is_stub(found) and not snippet.is_elided

    def _has_method(self, snippet: Snippet) -> bool:
        found = self._names & snippet.definitions
        return bool(found) and not snippet.is_stub(found) and not snippet.is_elided

    def _defines_somehow(self, snippet: Snippet) -> bool:
        return bool(self._names & (snippet.callables | snippet.definitions))

    def _can_run(self) -> list[bool]:
        """Whether each block could be the answer of tests that name no function."""
        alone: list[bool] = []
        defined_before: set[str] = set()
        for place, snippet in enumerate(self._snippets):
            alone.append(self._runs_alone(snippet, defined_before) or self._is_driver(place))
            defined_before |= snippet.definitions
        solid = [
            fit and not s.is_stub() and not s.is_elided
            for fit, s in zip(alone, self._snippets, strict=True)
        ]
        alone = solid if any(solid) else alone
        if not self._prefers_input:
            return alone
        programs = [
            fit and (s.is_program or s.is_attempt_with_input if s.tree is None else self._reads(i))
            for i, (fit, s) in enumerate(zip(alone, self._snippets, strict=True))
        ]
        complete = any(p and b.closed for p, b in zip(programs, self._blocks, strict=True))
        return programs if complete else alone

    def _reads(self, place: int) -> bool:
        return self._snippets[place].is_program or self._is_driver(place)

    def _runs_alone(self, snippet: Snippet, defined_before: Set[str]) -> bool:
        if snippet.tree is None:
            return snippet.is_attempt
        rank = snippet.substance(frozenset())
        if snippet.session or rank <= Substance.VALUES or returns_at_top(snippet.tree):
            return False
        if rank >= Substance.ANSWER:
            # A program that uses undefined names is wrong, but it may still be the answer.
            return not snippet.missing & defined_before
        return snippet.acts and not snippet.missing

    def _is_driver(self, place: int) -> bool:
        """Whether a block is a program together with the blocks that it needs.

        If one of these is a program itself, the block is an example of its use.
        """
        snippet = self._snippets[place]
        if snippet.tree is None or snippet.session or snippet.is_test or not snippet.missing:
            return False
        if not snippet.acts or returns_at_top(snippet.tree):
            return False
        needed = self._providers.needed_by(place)
        whole = [self._snippets[i] for i in needed] + [snippet]
        given = frozenset[str]().union(*(names for names in needed.values()))
        return (
            bool(needed)
            and all(i < place for i in needed)
            and snippet.missing <= given
            and any(s.reads for s in whole)
            and any(s.writes for s in whole)
            and not any(s.is_program for s in whole[:-1])
        )


def _read(block: Block) -> Snippet:
    snippet = Snippet.read(block.code)
    if _is_code(block.info):
        whole = Snippet.read(f"{block.info}\n{block.code}")
        return whole if whole.tree else snippet
    return snippet


def _is_code(info: str) -> bool:
    """Whether the text behind a fence's label is the program's first line."""
    return info.startswith(("import ", "from ", "def ", "class ", "@", "async def "))
