"""Choice of the answer among the code blocks of a completion, and what it needs of the others.

The last complete block that can be the answer is chosen:

- Python, if the tests name functions: a block that defines one, at top level rather than as a
  method, and not as a stub or with parts left out.
- Other Python: a block that could run alone: no fragment or stub, no sample of data or output,
  and no example of what an earlier block defines. Programs that read standard input and print come
  before all others, alone or with what earlier blocks define, and demonstrations that ask for their
  input and generators of tests come last. A block that does not parse counts as what it attempts.
- Any other language: a block that defines the function, if any does; of programs one that begins
  ``main`` and reads input, else one that begins ``main``. A C++ program includes headers, and what
  it uses of other blocks stands before it.

Blocks labelled with the language take precedence over blocks without a label. An unclosed block is
chosen only if no complete block can be the answer, but before complete blocks that cannot be it.

A name that the chosen Python block uses and binds nowhere comes from the nearest block before it
that binds the name at top level, or else from the first one behind it that defines or imports it;
likewise what these blocks lack. Tests, example data and examples that use the chosen block give
nothing. From a block are taken its imports, definitions and other steps, except what the chosen
block defines itself, output, and the reading of input that the wanted names do not come from. Of an
earlier version of the answer only imports, definitions and constants are taken.
"""

import ast
import html
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from shared.extraction.fences import Block
from shared.extraction.languages import Language, defines_function
from shared.extraction.python_source import (
    DEFINITIONS,
    IMPORTS,
    Source,
    bound_by,
    future_imports,
    is_main_guard,
    parse,
    readable,
    visible,
)
from shared.statuses import ExtractionReason

_NOTHING = (ExtractionReason.NO_CODE_BLOCK, ExtractionReason.EMPTY, ExtractionReason.PROSE_ONLY)
# A function, class or variable at top level.
_DEFINES = re.compile(
    r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
# A program that asks a person for its input, or that runs others.
_DEMONSTRATES = re.compile(
    r"\binput[ \t]*\([ \t]*f?[\"'][^\"'\n]|(?:cout|printf)[^;\n]*\"(?:Enter|Please)"
    r"|^[ \t]*(?:import|from)[ \t]+(?:subprocess|timeit|unittest|pytest)\b",
    re.MULTILINE,
)
_GENERATES = re.compile(
    r"\bgenerators?\b|\bgenerat\w+ (?:\w+ ){0,2}(?:tests?|inputs?|cases?|data)\b|\bstress\b"
    r"|\brandom(?:ized)? (?:\w+ )?(?:tests?|inputs?|cases?|data)\b|\bbrute|\bdef gen|\bgen\w*\(",
    re.IGNORECASE,
)
_EMPTY_MAIN = re.compile(
    r"main[ \t]*\([^)\n]{0,80}\)[^{;]{0,40}\{(?:\s++|//[^\n]*+\n|return 0;)*+\}"
)
_MOST_BLOCKS = 20  # before and behind the chosen one


@dataclass(frozen=True, slots=True)
class Extraction:
    """The code found in a completion.

    Attributes:
        start: Character offset of the code in the completion; None if the code is not one
            contiguous part of it.
        sure: False if it was only better than nothing.
    """

    code: str
    reason: ExtractionReason
    start: int | None = field(default=None, compare=False)
    sure: bool = field(default=True, compare=False)

    @property
    def found(self) -> bool:
        return self.reason not in _NOTHING


def choose(
    text: str,
    blocks: Iterable[Block],
    language: Language,
    names: Set[str],
) -> Extraction | None:
    """Choose one of a text's blocks; None if no block is in the language.

    ``names`` are those that the tests call; none if they are unknown.
    """
    own = [b for b in blocks if b.code.strip() and (not b.label or language.owns(b.label))]
    if not own:
        return None
    if language.is_python:
        sources = [Source(readable(block.code)) for block in own]
        codes = [source.code for source in sources]
        scores = _python_scores(text, own, sources, names)
    else:
        sources, codes = [], [_readable(block.code) for block in own]
        scores = _scores(text, own, codes, language, names)
    closed = (score for score, block in zip(scores, own, strict=True) if block.closed)
    least = max(1, max(closed, default=0) or max(scores))

    def tier(place: int) -> int:
        block = own[place]
        if block.closed and scores[place] >= least:
            return 0 if block.label else 1
        return 3 if block.closed else 2

    chosen = min(range(len(own)), key=lambda place: (tier(place), -place))
    block, code, fit = own[chosen], codes[chosen], scores[chosen] >= least
    if sources:
        named = not names or not names.isdisjoint(sources[chosen].names)
    else:  # of programs one without a ``main`` is only better than nothing
        main = None if names else language.main
        named = main is None or main.search(code) is not None
    reason = ExtractionReason.FENCED if block.label else ExtractionReason.UNLABELLED
    if not block.closed:
        reason = ExtractionReason.UNCLOSED_FENCE
    elif len(own) > 1 and (whole := _combine(language, sources, codes, chosen, names)):
        return Extraction(whole, ExtractionReason.COMBINED, sure=named)
    elif not fit:
        reason = ExtractionReason.FRAGMENT
    sure = named and (fit or bool(block.label and not block.closed))
    return Extraction(code, reason, sure=sure)


def _readable(code: str) -> str:
    """A block without invisible characters, and without HTML's entities if all of it has them."""
    code = visible(code)
    return html.unescape(code) if "&lt;" in code and "<" not in code else code


def _combine(
    language: Language,
    sources: Sequence[Source],
    codes: Sequence[str],
    chosen: int,
    names: Set[str],
) -> str | None:
    if language.is_python:
        return combine(sources, chosen, names)
    return _combine_cpp(codes, chosen, language) if language.is_cpp else None


# Scores: only the best blocks can be the answer, and none with 0


def _scores(
    text: str, blocks: Sequence[Block], codes: Sequence[str], language: Language, names: Set[str]
) -> list[int]:
    """Scores of blocks in a language that is not analysed further."""
    if any(named := [any(defines_function(code, n) for n in names) for code in codes]):
        return [1 + fit for fit in named]
    main = language.main
    if names or main is None:
        return [1] * len(codes)

    def score(block: Block, code: str) -> int:
        if not main.search(code) or _EMPTY_MAIN.search(code):
            return 1
        reads = 2 * bool(language.reads.search(code))
        # A second ``main`` without headers is an example of what an earlier program defines.
        whole = 4 * (language.is_cpp and "#include" in code)
        return 2 + whole + reads + (not _is_test(text, block, code))

    return [score(block, code) for block, code in zip(blocks, codes, strict=True)]


def _python_scores(
    text: str, blocks: Sequence[Block], sources: Sequence[Source], names: Set[str]
) -> list[int]:
    if names:
        top = [
            any((match[1] or match[2]) in names for match in _DEFINES.finditer(source.code))
            for source in sources
        ]
        scores = [int(a or bool(names & s.definitions)) for a, s in zip(top, sources, strict=True)]
        if sum(scores) > 1:  # the first of a class counts less than that of a module
            scores = [
                score and 1 + (1 + at_top if source.is_full(names) else 0)
                for score, at_top, source in zip(scores, top, sources, strict=True)
            ]
        if any(scores):
            return scores
    if len(sources) == 1 and sources[0].is_clear:
        return [1]
    scores = []
    defined: set[str] = set()
    for place, (block, source) in enumerate(zip(blocks, sources, strict=True)):
        alone = _runs_alone(source, defined)
        whole = source.is_whole or (source.tree is None and source.reads)
        driver = not (alone and whole) and _is_driver(sources, place)
        if not (alone or driver):
            scores.append(0)
        elif whole or driver:
            scores.append(3 + (not _is_test(text, block, source.code)))
        else:
            scores.append(1 + (source.acts or source.is_full(source.definitions)))
        defined |= source.definitions
    return scores


def _runs_alone(source: Source, defined_before: Set[str]) -> bool:
    if source.tree is None:
        return source.is_attempt
    if not source.is_program:
        return False
    if source.has_substance:
        # A program that uses undefined names is wrong, but it may still be the answer.
        return not source.missing & defined_before
    return source.acts and not source.missing


def _is_driver(sources: Sequence[Source], place: int) -> bool:
    """Whether a block is a program together with the blocks that it needs.

    If one of these is a program itself, the block is an example of its use.
    """
    source = sources[place]
    if place == 0 or not source.acts or not source.missing:
        return False
    parts = [sources[i] for i in needed_by(sources, place)]
    return (
        bool(parts)
        and any(part.reads for part in (*parts, source))
        and not any(part.is_whole for part in parts)
    )


def _is_test(text: str, block: Block, code: str) -> bool:
    """Whether a block makes or runs tests, or asks a person for its input."""
    before = text[max(0, block.opening - 200) : block.opening].rstrip().rpartition("\n\n")[2]
    if _DEMONSTRATES.search(code):
        return True
    return _GENERATES.search(f"{before}\n{code}") is not None


# Combination


def needed_by(
    sources: Sequence[Source], chosen: int, names: Set[str] = frozenset()
) -> dict[int, set[str]]:
    """The places of blocks that the chosen one needs, each with the names taken from it.

    ``names`` are wanted besides. Only the nearest blocks are looked at.
    """
    answer = sources[chosen]
    wanted = [(name, chosen) for name in sorted(answer.missing | (names - set(answer.bound)))]
    if not wanted:
        return {}
    near = range(max(0, chosen - _MOST_BLOCKS), min(len(sources), chosen + _MOST_BLOCKS + 1))
    givers = [i for i in near if i != chosen and _may_give(sources[i], answer, i < chosen)]
    seen = {name for name, _ in wanted}
    taken: dict[int, set[str]] = {}
    while wanted:
        name, user = wanted.pop()
        binding = [i for i in givers if name in sources[i].bound.keys() - sources[i].imported]
        before = [i for i in binding if i < user]
        behind = [i for i in binding if i > user and sources[i].bound[name]]
        if before or behind:
            place = before[-1] if before else behind[0]
            taken.setdefault(place, set()).add(name)
            further = sources[place].missing - answer.bound.keys() - seen
            seen |= further
            wanted += [(name, place) for name in sorted(further)]
    # Blocks that change the values of variables are needed, too, such as ``values.sort()``.
    variables = {name for i, names in taken.items() for name in names & sources[i].variables}
    for i in givers if variables else ():
        if min(taken) < i < chosen and not sources[i].writes and sources[i].missing & variables:
            taken.setdefault(i, set())
    return taken


def _may_give(source: Source, answer: Source, before: bool) -> bool:
    """Whether a block is no test, no example data and no example of what the chosen one defines."""
    if source.is_data:
        return False
    return not source.missing & answer.definitions or (before and not source.acts)


def combine(sources: Sequence[Source], chosen: int, names: Set[str]) -> str | None:
    """The chosen block behind what it needs of others; None if it needs nothing that they have."""
    answer = sources[chosen]
    needed = needed_by(sources, chosen, names) if answer.tree else {}
    if not needed:
        return None
    taken = frozenset[str]().union(*needed.values()) & answer.imported
    try:
        parts = [_part(sources[place], answer, needed[place]) for place in sorted(needed)]
        kept = [
            s for s in answer.body if not isinstance(s, ast.ImportFrom) or not bound_by(s) & taken
        ]
        parts.append(_text(kept) if taken else answer.code)
    except RecursionError:  # of an expression that is nested too deeply
        return None
    futures, bodies = [], []
    for part in parts:
        head, body = future_imports(part)
        futures += head
        bodies.append(body.strip("\n"))
    code = "\n\n".join([*dict.fromkeys(futures), *filter(None, bodies)])
    return code if parse(code) else None


def _part(source: Source, answer: Source, names: Set[str]) -> str:
    """The statements of a block that go into the combination."""
    own = answer.definitions | (answer.bound.keys() - answer.imported)
    is_version = source.is_whole or bool(source.definitions & answer.definitions)
    reading = any(bound_by(s) & names and _step(s).reads for s in source.body)

    def belongs(statement: ast.stmt) -> bool:
        bound = bound_by(statement)
        if isinstance(statement, (*IMPORTS, *DEFINITIONS)):
            return not bound <= own or isinstance(statement, IMPORTS)
        if (
            isinstance(statement, ast.Assert)
            or is_main_guard(statement)
            or (bound and bound <= own)
        ):
            return False
        step = _step(statement)
        if step.reads:
            return reading
        if isinstance(statement, ast.Expr):  # a setting such as ``sys.setrecursionlimit``
            is_method = isinstance(getattr(statement.value, "func", None), ast.Attribute)
            return is_method and not (step.writes or is_version)
        return bound <= names or not (step.writes or is_version)

    return _text([statement for statement in source.body if belongs(statement)])


def _step(statement: ast.stmt) -> Source:
    return Source(ast.unparse(statement))


def _text(statements: Sequence[ast.stmt]) -> str:
    return "\n".join(map(ast.unparse, statements))


# Parts of a C++ program in several blocks, found by lines without compiling

_MAIN = re.compile(r"\bmain[ \t]*\(")
_OWN_HEADER = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"[^\"\n]*\"[^\n]*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_TYPE = (
    r"(?:(?!(?:using|return|else|if|for|while|namespace|case|goto|new|delete)\b)"
    r"[\w:]+(?:<[\w:,<>* ]*>)?[ \t*&]+)+"
)
# What a line without indentation defines: a macro, a type, a function or a variable.
_NAME = re.compile(
    rf"^(?:#define[ \t]+|{_TYPE})(?!main\b)(\w+)[ \t]*(?=[({{;=\[]|:|$|\d)", re.MULTILINE
)
# A step of a program, which cannot stand outside a function.
_STATEMENT = re.compile(
    r"^(?:(?:std::)?(?:cin|cout|scanf|printf|sort)\b|(?:for|while|if|return)\b"
    r"|\w+(?:\[[^\]\n]*\])?[ \t]*[-+*/]?=)",
    re.MULTILINE,
)


def _combine_cpp(codes: Sequence[str], chosen: int, language: Language) -> str | None:
    """The chosen program behind the other blocks whose names it uses; None if it uses none."""
    answer = codes[chosen]
    defined = set(_NAME.findall(answer))
    used = set(_WORD.findall(language.literal.sub(" ", answer))) - defined
    parts: list[str] = []
    for place, code in enumerate(codes):
        names = set(_NAME.findall(code))
        wanted = place != chosen and names & used and not names & defined
        if wanted and not _MAIN.search(code) and _stands_alone(code):
            parts.append(code)
            defined |= names
    if not parts:
        return None
    return "\n\n".join(_OWN_HEADER.sub("", part).strip("\n") for part in (*parts, answer))


def _stands_alone(code: str) -> bool:
    whole = code.rstrip().endswith((";", "}")) and code.count("{") == code.count("}")
    return whole and not _STATEMENT.search(code)
