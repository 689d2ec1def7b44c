"""Choice of the answer among the code blocks of a completion.

The last complete block that can be the answer is chosen:

- Python, if the tests name functions: a block that defines one, at top level rather than as a
  method, and not as a stub or with parts left out.
- Other Python: a block that could run alone: no fragment or stub, no sample of data or output,
  and no example of what an earlier block defines. Programs that read standard input and print come
  before all others, alone or with what earlier blocks define, and demonstrations that ask for their
  input and generators of tests come last. A block that does not parse counts as what it attempts.
- C++: a block that begins ``main`` and reads input, else one that begins ``main``, else one that
  includes a header.
- Any other language: a block that defines the function, if any does; of programs one that begins
  ``main`` and reads input, else one that begins ``main``.

Blocks labelled with the language take precedence over blocks without a label. An unclosed block is
chosen only if no complete block can be the answer, but before complete blocks that cannot be it.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from shared.extraction import cpp_source as cpp
from shared.extraction.combination import combine, needed_by
from shared.extraction.fences import Block
from shared.extraction.languages import Language, defines_function
from shared.extraction.python_source import Source, readable
from shared.statuses import ExtractionReason

_NOTHING = (ExtractionReason.NO_CODE_BLOCK, ExtractionReason.EMPTY, ExtractionReason.PROSE_ONLY)
_PROMPT = re.compile(
    r"\binput[ \t]*\([ \t]*f?[\"'][^\"'\n]|(?:cout|printf)[^;\n]*\"(?:Enter|Please)"
)
_RANDOM = re.compile(r"\brand(?:om|int)?\b|\bmt19937|\bdefault_rng\b")
_GENERATES = re.compile(
    r"\bgenerators?\b|\bgenerat\w+ (?:\w+ ){0,2}(?:tests?|inputs?|cases?|data)\b|\bstress\b"
    r"|\brandom(?:ized)? (?:\w+ )?(?:tests?|inputs?|cases?|data)\b|\bbrute|\bdef gen|\bgen\w*\(",
    re.IGNORECASE,
)
_RUNS_OTHERS = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:subprocess|timeit|unittest|pytest)\b", re.M
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
        return self.reason not in _NOTHING


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen block; ``sure`` is false if it was only better than nothing."""

    extraction: Extraction
    sure: bool


def choose(
    text: str,
    blocks: Iterable[Block],
    language: Language,
    names: Set[str],
) -> Choice | None:
    """Choose one of a text's blocks; None if no block is in the language.

    ``names`` are those that the tests call; none if they are unknown.
    """
    own = [b for b in blocks if b.code.strip() and (not b.label or language.owns(b.label))]
    if not own:
        return None
    kind = _PythonBlocks if language.is_python else _CppBlocks if language.is_cpp else _Blocks
    group = kind(text, own, names, language)
    fits = group.fits()
    places = range(len(own))

    def tier(place: int) -> int:
        block, fit = own[place], fits[place]
        if block.closed and fit:
            return 0 if block.label else 1
        if not block.closed:
            return 2 if block.label or fit else 4
        return 3 if block.label else 5

    best = min(map(tier, places))
    chosen = max(place for place in places if tier(place) == best)
    block, code = own[chosen], group.codes[chosen]
    reason = ExtractionReason.FENCED if block.label else ExtractionReason.UNLABELLED
    if not block.closed:
        reason = ExtractionReason.UNCLOSED_FENCE
    elif whole := group.combine(chosen):
        return Choice(Extraction(whole, ExtractionReason.COMBINED), group.is_sure(chosen))
    elif not fits[chosen]:
        reason = ExtractionReason.FRAGMENT
    sure = (fits[chosen] or bool(block.label and not block.closed)) and group.is_sure(chosen)
    return Choice(Extraction(code, reason, block.start), sure)


class _Blocks:
    """Blocks in a language that is not analysed further."""

    _readable: Callable[[str], str] = staticmethod(str)

    def __init__(
        self, text: str, blocks: Sequence[Block], names: Set[str], language: Language
    ) -> None:
        self._programs = None if names else language.programs
        self.codes = [self._readable(block.code) for block in blocks]
        self._blocks = blocks
        self._names = names
        # The last words before each block.
        self._before = [text[max(0, b.opening - 200) : b.opening].rstrip() for b in blocks]

    def fits(self) -> list[bool]:
        fits = [any(defines_function(code, name) for name in self._names) for code in self.codes]
        return fits if any(fits) else self._usable()

    def _usable(self) -> list[bool]:
        signs = self._programs
        if signs is None:
            return [True] * len(self.codes)
        whole = [signs.main.search(code) is not None for code in self.codes]
        reading = [
            fit and signs.reads.search(code) is not None
            for fit, code in zip(whole, self.codes, strict=True)
        ]
        whole = self._without_tests(reading if self._any_closed(reading) else whole)
        return whole if self._any_closed(whole) else [True] * len(self.codes)

    def combine(self, place: int) -> str | None:
        return None

    def is_sure(self, place: int) -> bool:
        return True

    def _generates_tests(self, place: int) -> bool:
        """Whether a block makes or runs tests, or asks a person for its input."""
        code, before = self.codes[place], self._before[place].rpartition("\n\n")[2]
        if _PROMPT.search(code) or _RUNS_OTHERS.search(code):
            return True
        random = _RANDOM.search(code)
        return bool(random) and _GENERATES.search(before + "\n" + code) is not None

    def _without_tests(self, programs: list[bool]) -> list[bool]:
        """The programs besides demonstrations and generators of tests, if there are any."""
        if programs.count(True) < 2:
            return programs
        plain = [fit and not self._generates_tests(i) for i, fit in enumerate(programs)]
        return plain if any(plain) else programs

    def _any_closed(self, fits: Sequence[bool]) -> bool:
        return any(fit and block.closed for fit, block in zip(fits, self._blocks, strict=True))


class _CppBlocks(_Blocks):
    _readable = staticmethod(cpp.readable_cpp)

    def _usable(self) -> list[bool]:
        whole = [cpp.has_main(code) for code in self.codes]
        if whole.count(True) > 1:
            alone = [fit and not cpp.uses_program(self.codes, i) for i, fit in enumerate(whole)]
            reading = [
                fit and cpp.reads_input(code) for fit, code in zip(alone, self.codes, strict=True)
            ]
            whole = self._without_tests(reading if self._any_closed(reading) else alone)
        if self._any_closed(whole):
            return whole
        return [cpp.looks_like_cpp(code) for code in self.codes]

    def is_sure(self, place: int) -> bool:
        return cpp.looks_like_cpp(self.codes[place])

    def combine(self, place: int) -> str | None:
        return cpp.combine_cpp(self.codes, place)


class _PythonBlocks(_Blocks):
    _readable = staticmethod(readable)

    def __init__(
        self, text: str, blocks: Sequence[Block], names: Set[str], language: Language
    ) -> None:
        super().__init__(text, blocks, names, language)
        self._sources = [Source(code) for code in self.codes]
        words = "|".join(map(re.escape, sorted(names)))
        self._defines = re.compile(
            rf"^(?:(?:async[ \t]+)?def|class)[ \t]+(?:{words})\b"
            rf"|^(?:{words})[ \t]*(?::[^=\n]*)?=(?!=)",
            re.MULTILINE,
        )

    def fits(self) -> list[bool]:
        if self._names:
            defining = [self._defines.search(code) is not None for code in self.codes]
            methods = [bool(self._names & source.definitions) for source in self._sources]
            either = [a or b for a, b in zip(defining, methods, strict=True)]
            if either.count(True) == 1:
                return either
            for fits in (defining, methods):
                full = [
                    fit and s.is_full(self._names)
                    for fit, s in zip(fits, self._sources, strict=True)
                ]
                if any(full):
                    return full
            if any(either):
                return either
        return self._usable()

    def _usable(self) -> list[bool]:
        if len(self._sources) == 1 and self._sources[0].is_clear:
            return [True]
        alone: list[bool] = []
        defined: set[str] = set()
        for place, source in enumerate(self._sources):
            alone.append(self._runs_alone(source, defined) or self._is_driver(place))
            defined |= source.definitions
        pairs = list(zip(alone, self._sources, strict=True))
        solid = [fit and (s.acts or s.is_full(s.definitions)) for fit, s in pairs]
        alone = solid if any(solid) else alone
        programs = [fit and self._is_whole(place) for place, fit in enumerate(alone)]
        return self._without_tests(programs) if self._any_closed(programs) else alone

    def _is_whole(self, place: int) -> bool:
        source = self._sources[place]
        if source.tree is None:
            return source.is_attempt and source.reads
        return source.is_whole or self._is_driver(place)

    def _runs_alone(self, source: Source, defined_before: Set[str]) -> bool:
        if source.tree is None:
            return source.is_attempt
        if not source.is_program:
            return False
        if source.has_substance:
            # A program that uses undefined names is wrong, but it may still be the answer.
            return not (defined_before and source.missing & defined_before)
        return source.acts and not source.missing

    def _is_driver(self, place: int) -> bool:
        """Whether a block is a program together with the blocks that it needs.

        If one of these is a program itself, the block is an example of its use.
        """
        source = self._sources[place]
        if place == 0 or not source.acts or not source.missing or not source.is_program:
            return False
        needed = needed_by(self._sources, place)
        others = [self._sources[i] for i in needed]
        return (
            bool(needed)
            and max(needed) < place
            and source.missing <= frozenset[str]().union(*needed.values())
            and any(s.reads for s in (*others, source))
            and any(s.writes for s in (*others, source))
            and not any(s.is_whole for s in others)
        )

    def is_sure(self, place: int) -> bool:
        """Whether a chosen block has a name that the tests call, if these are known."""
        source = self._sources[place]
        return not self._names or bool(
            self._names & source.definitions
            or self._defines.search(source.code)
            or self._names & source.bound.keys()
        )

    def combine(self, place: int) -> str | None:
        return combine(self._sources, place, self._names) if len(self._sources) > 1 else None
