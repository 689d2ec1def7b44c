"""Marks of texts for page and report: syntax by Pygments, differences by difflib.

Places and lengths count UTF-16 code units, as JavaScript does. Both take bounded time: of long
texts only the begin is marked.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Self

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Number, String, _TokenType
from pygments.util import ClassNotFound

from shared.harness.languages import LANGUAGES
from shared.schemas import CaseRecord, FailedCase

# Characters and seconds of highlighting: a lexer's patterns may take long on hostile texts.
_MOST, _SECONDS = 50_000, 0.2
# Lines and words of each text that are compared: difflib takes their product in the worst case.
_MOST_LINES, _MOST_WORDS = 1000, 400
# Two lines of which less is the same are marked as a whole.
_ALIKE = 0.4
_KINDS = ((Comment, 1), (String, 2), (Number, 3), (Keyword, 4))
_FENCE = re.compile(r"```[ \t]*([\w+#-]*)[ \t]*\r?\n(.*?)```", re.DOTALL)
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
# Of SandboxFusion's languages, those that Pygments knows by another name.
_NAMES = {spec.name: spec.lexer for spec in LANGUAGES.values()} | {
    "pytest": "python",
    "junit": "java",
}

Syntax = list[int]
"""Pairs of a length and a kind, from the begin of a text: 0 none, 1 comment, 2 string, 3 number, 4
keyword. What follows is not marked."""
Mark = tuple[int, int, int]
"""Line, begin and end of what differs in it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between the lines of an expected and an actual output, trailing blanks apart."""

    expected: list[Mark] = field(default_factory=list)
    actual: list[Mark] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CaseMarks:
    """Marks of a case: its outputs' difference or, of a function test, the syntax of the test."""

    difference: Difference | None = None
    test: Syntax = field(default_factory=list)

    @classmethod
    def of(cls, case: FailedCase | CaseRecord, language: str | None) -> Self:
        if case.input is None:  # a test is a program
            return cls(test=highlighted(case.expected or "", language))
        return cls(difference(case.expected or "", case.actual or ""))


@dataclass(frozen=True, slots=True)
class SampleMarks:
    """Marks of a sample's texts, as the page shows them; without a language only differences."""

    completion: Syntax
    code: Syntax
    case: CaseMarks

    @classmethod
    def of(cls, completion: str, code: str, case: FailedCase | None, language: str | None) -> Self:
        return cls(
            highlighted_answer(completion, language),
            highlighted(code.rstrip(), language),
            CaseMarks.of(case, language) if case else CaseMarks(),
        )


@lru_cache(maxsize=8)  # a program is mostly the text of its answer's block
def highlighted(code: str, language: str | None) -> Syntax:
    """The syntax of a program; nothing in a language that Pygments does not know."""
    marks: Syntax = []
    lexer = _lexer(language)
    if lexer is None:
        return marks
    end = time.monotonic() + _SECONDS
    # Some lexers know a comment by the end of its line.
    for _, kind, text in lexer.get_tokens_unprocessed(f"{code[:_MOST]}\n"):
        _add(marks, _length(text), _number(kind))
        if time.monotonic() > end:
            break
    return marks


def highlighted_answer(text: str, language: str | None) -> Syntax:
    """The syntax of the fenced blocks of an answer; of an answer without any, that of its text."""
    marks: Syntax = []
    if language is None:
        return marks
    done = 0
    for block in _FENCE.finditer(text[:_MOST]):
        _add(marks, _length(text[done : block.start(2)]), 0)
        inner = highlighted(block[2].rstrip(), block[1].lower() or language)
        for place in range(0, len(inner), 2):
            _add(marks, *inner[place : place + 2])
        _add(marks, _length(block[2]) - sum(inner[::2]), 0)
        done = block.end(2)
    return marks if done else highlighted(text, language)


def difference(expected: str, actual: str) -> Difference:
    """Find the lines that differ, and in those that are alike the words."""
    ours, theirs = _lines(expected), _lines(actual)
    marks = Difference()
    first, second = ([line.rstrip() for line in text] for text in (ours, theirs))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for kind, i, last_i, j, last_j in matcher.get_opcodes():
        if kind == "equal":
            continue
        paired = last_i - i == last_j - j
        for place in range(i, last_i):
            other = theirs[j + place - i] if paired else None
            marks.expected.extend((place, *ends) for ends in _words(ours[place], other))
        for place in range(j, last_j):
            other = ours[i + place - j] if paired else None
            marks.actual.extend((place, *ends) for ends in _words(theirs[place], other))
    return marks


def _words(line: str, other: str | None) -> Iterator[tuple[int, int]]:
    """Begin and end of what differs in a line from the other one; all of it without one."""
    words = _WORDS.findall(line)
    others = _WORDS.findall(other or "")
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    if max(len(words), len(others)) > _MOST_WORDS or matcher.quick_ratio() < _ALIKE:
        yield 0, _length(line)
        return
    for kind, i, last, _, _ in matcher.get_opcodes():
        if kind != "equal" and last > i:
            begin = _length("".join(words[:i]))
            yield begin, begin + _length("".join(words[i:last]))


def _lines(text: str) -> list[str]:
    return text[:_MOST].split("\n")[:_MOST_LINES]


@cache
def _lexer(language: str | None) -> Lexer | None:
    try:
        return get_lexer_by_name(_NAMES.get(language or "", language or ""))
    except ClassNotFound:
        return None


@cache
def _number(kind: _TokenType) -> int:
    return next((number for kinds, number in _KINDS if kind in kinds), 0)


def _add(marks: Syntax, length: int, kind: int) -> None:
    if marks and marks[-1] == kind:
        marks[-2] += length
    elif length:
        marks += [length, kind]


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
