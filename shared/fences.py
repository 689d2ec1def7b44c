"""Fenced blocks in Markdown as models write it: CommonMark's rules, read with some leniency."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.python_source import ends_inside_string, parse

_PYTHON = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3"})

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)", re.DOTALL)
_LABEL = re.compile(r"[\s{.]*([A-Za-z0-9_+#-]*)")
# "Here it is:```python": no fence to CommonMark, and a common slip.
_LATE_FENCE = re.compile(r"(?<!`)(```)[ \t]*(python3?|py)[ \t]*\Z", re.IGNORECASE)
_MAX_SKIPPED_CLOSERS = 4


@dataclass(frozen=True, slots=True)
class Block:
    """``label`` is lower-case and "" where there is none."""

    label: str
    code: str
    closed: bool

    @property
    def is_python(self) -> bool:
        return self.label in _PYTHON


@dataclass(frozen=True, slots=True)
class _Opener:
    indent: int
    fence: str
    label: str


def find_blocks(text: str) -> list[Block]:
    """Find the fenced blocks of a text with "\\n" line ends, in order.

    A block ends at a line that holds nothing but a fence of the same character, at least as long as
    the opening one and indented by at most three columns more. A line that opens a Python block
    ends an unclosed block before it. What an indented opening fence is indented by is taken off
    every line of its block, as far as all of them have it. A fence inside a triple-quoted Python
    string does not end the block.
    """
    return list(_scan(text.split("\n")))


def _scan(lines: Sequence[str]) -> Iterator[Block]:
    index = 0
    while index < len(lines):
        opener = _opening(lines[index])
        index += 1
        if opener is None:
            continue
        end, closed = _end(lines, index, opener)
        if closed and opener.label in _PYTHON:
            end = _outside_strings(lines, index, end, opener)
        yield Block(opener.label, _content(lines[index:end], opener.indent), closed)
        index = end + 1 if closed else end


def _opening(line: str) -> _Opener | None:
    match = _FENCE.match(line)
    if match is None:
        late = _LATE_FENCE.search(line)
        return _Opener(0, "```", late[2].lower()) if late else None
    indent, fence, info = match.groups()
    if fence[0] == "`" and "`" in info:
        return None  # a code span
    label = _LABEL.match(info)
    return _Opener(len(indent), fence, label[1].lower() if label else "")


def _end(lines: Sequence[str], start: int, opener: _Opener) -> tuple[int, bool]:
    """Index of the line that ends the block, and whether it is a closing fence."""
    for index in range(start, len(lines)):
        match = _FENCE.match(lines[index])
        if match is None or len(match[1]) > opener.indent + 3:
            continue
        fence, info = match[2], match[3]
        if fence[0] == opener.fence[0] and len(fence) >= len(opener.fence) and not info.strip():
            return index, True
        following = _opening(lines[index])
        if following and following.label in _PYTHON and len(fence) == len(opener.fence):
            return index, False
    return len(lines), False


def _outside_strings(lines: Sequence[str], start: int, end: int, opener: _Opener) -> int:
    """Move the end on where the fence found is part of a string, else leave it."""
    later = end
    for _ in range(_MAX_SKIPPED_CLOSERS):
        if not ends_inside_string(_content(lines[start:later], opener.indent)):
            break
        later, closed = _end(lines, later + 1, opener)
        if not closed:
            return end
    return later if later == end or parse(_content(lines[start:later], opener.indent)) else end


def _content(lines: Sequence[str], indent: int) -> str:
    """Join lines less the fence's indentation, or less what all of them have if that is less."""
    common = min((_blanks(line) for line in lines if line.strip()), default=0)
    removed = min(indent, common)
    return "\n".join(line[min(removed, _blanks(line)) :] for line in lines)


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
