"""Parser for fenced Markdown code blocks: CommonMark's rules, lenient to mistakes of models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shared.extraction.languages import Language
from shared.extraction.python_source import ends_inside_string, parse

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)", re.DOTALL)
_LABEL = re.compile(r"[\s{.]*([A-Za-z0-9_+#-]*)")
# "Here it is:```python" is not a fence in CommonMark, but a common mistake.
_LATE_FENCE = re.compile(r"(?<!`)```[ \t]*([A-Za-z0-9_+#-]+)[ \t]*\Z")
# "print(x)```"; a fence in a comment is part of the code.
_GLUED_FENCE = re.compile(r"^([^#\n]*[^#`\n])```[ \t]*$", re.MULTILINE)
_MAX_SKIPPED_CLOSERS = 4


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        label: Label in lower case, or "".
        line: Index of the line with the opening fence.
        start: Character offset of the line after it.
    """

    label: str
    code: str
    closed: bool
    line: int
    start: int


@dataclass(frozen=True, slots=True)
class _Opener:
    indent: int
    fence: str
    label: str


def find_blocks(text: str, language: Language) -> list[Block]:
    """Find the fenced blocks of a text with "\\n" line ends, in order.

    A block ends at a line with only a fence of the same character, at least as long as the opening
    fence and indented by at most three more columns. A line that opens a block in the wanted
    language ends an unclosed block before it. The indentation of the opening fence is removed from
    every line of its block, as far as all lines have it. A fence inside a triple-quoted string does
    not end a Python block; if no line ends it, a fence at the end of a line of code may.
    """
    return list(_scan(text.split("\n"), language))


def _scan(lines: Sequence[str], language: Language) -> Iterator[Block]:
    offsets = [0, *accumulate(len(line) + 1 for line in lines)]
    start = 0
    while start < len(lines):
        opener = _opening(lines[start], language)
        start += 1
        if opener is None:
            continue
        end, closed = _end(lines, start, opener, language)
        if closed and language.is_python and language.owns(opener.label):
            end = _outside_strings(lines, start, end, opener, language)
        code = _content(lines[start:end], opener.indent)
        following = end + 1 if closed else end
        if not closed:
            code, closed = _cut_at_glued_fence(code, language)
        yield Block(opener.label, code, closed, start - 1, offsets[start])
        start = following


def _opening(line: str, language: Language) -> _Opener | None:
    match = _FENCE.match(line)
    if match is None:
        late = _LATE_FENCE.search(line)
        label = late[1].lower() if late else ""
        return _Opener(0, "```", label) if language.owns(label) else None
    indent, fence, info = match.groups()
    if fence[0] == "`" and "`" in info:
        return None  # a code span
    found = _LABEL.match(info)
    return _Opener(len(indent), fence, found[1].lower() if found else "")


def _end(lines: Sequence[str], start: int, opener: _Opener, language: Language) -> tuple[int, bool]:
    """Index of the line that ends the block, and whether it is a closing fence."""
    for index in range(start, len(lines)):
        match = _FENCE.match(lines[index])
        if match is None or len(match[1]) > opener.indent + 3:
            continue
        fence, info = match[2], match[3]
        if fence[0] == opener.fence[0] and len(fence) >= len(opener.fence) and not info.strip():
            return index, True
        following = _opening(lines[index], language)
        if following and language.owns(following.label) and len(fence) == len(opener.fence):
            return index, False
    return len(lines), False


def _outside_strings(
    lines: Sequence[str], start: int, end: int, opener: _Opener, language: Language
) -> int:
    """Move the end to a later fence if the one found is part of a string."""
    later = end
    for _ in range(_MAX_SKIPPED_CLOSERS):
        if not ends_inside_string(_content(lines[start:later], opener.indent)):
            break
        later, closed = _end(lines, later + 1, opener, language)
        if not closed:
            return end
    return later if later == end or parse(_content(lines[start:later], opener.indent)) else end


def _cut_at_glued_fence(code: str, language: Language) -> tuple[str, bool]:
    """End an unclosed block at "print(x)```" if the text before the fence parses as Python."""
    glued = _GLUED_FENCE.search(code)
    if glued and language.is_python and parse(code) is None and parse(code[: glued.end(1)]):
        return code[: glued.end(1)], True
    return code.rstrip().removesuffix("```"), False


def _content(lines: Sequence[str], indent: int) -> str:
    """Join lines without the fence's indentation, as far as all of them have it."""
    common = min((_blanks(line) for line in lines if line.strip()), default=0)
    removed = min(indent, common)
    return "\n".join(line[min(removed, _blanks(line)) :] for line in lines)


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
