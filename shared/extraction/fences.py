"""Parser for fenced Markdown code blocks: CommonMark's rules, lenient to mistakes of models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from shared.extraction.languages import Language, is_known_label
from shared.extraction.python_source import ends_inside_string, parse
from shared.statuses import ExtractionReason

_INFO = re.compile(r"(`{3,}|~{3,}|'{3})(.*)", re.DOTALL)
_LABEL = re.compile(r"[\s{.]*((?:language-|lang=)?[A-Za-z0-9_+#./-]*)")
_ATTRIBUTES = re.compile(r"[\s\w.{}=\"':,;/\\#()\[\]+-]*\Z")
# "Here it is:```python" is not a fence in CommonMark, but a common mistake.
_LATE_FENCE = re.compile(r"(?<!`)```[ \t]*([A-Za-z0-9_+#-]+)[ \t]*\Z")
_AFTER_COLON = re.compile(r":\**[ \t]*```[ \t]*\Z")
# "print(x)```"; a fence in a comment is part of the code.
_GLUED_FENCE = re.compile(r"^([^#\n]*[^#`\n])```[ \t]*(?:<[^\n]*)?$", re.MULTILINE)
_GLUED_IN_CPP = re.compile(r"[;}][ \t]*```[ \t]*(?:<[^\n]*)?$", re.MULTILINE)
_CLOSING_TAG = re.compile(r"(?:</[A-Za-z_]{1,20}>|\[/[A-Z]{1,20}\])\Z")
_MAX_SKIPPED_FENCES = 8
_LONGEST_FENCE = 10  # longer ones count as so long


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        label: Label in lower case, or "".
        line: Index of the line with the opening fence.
        start: Character offset of the line after it.
        info: Text behind the label.
        reason: Reason to record if this block is chosen; None for a fenced block.
    """

    label: str
    code: str
    closed: bool
    line: int
    start: int
    info: str = ""
    reason: ExtractionReason | None = None


@dataclass(frozen=True, slots=True)
class _Fence:
    """A line with a fence; ``indent`` counts characters before it, quote marks (">") included."""

    line: int
    indent: int
    quoted: bool
    mark: str
    length: int
    label: str = ""
    info: str = ""
    late: bool = False

    @property
    def bare(self) -> bool:
        return not self.label and not self.info

    def opens(self, language: Language) -> bool:
        """Whether it begins a block even where one is open."""
        known = is_known_label(self.label) or language.owns(self.label)
        return known and _ATTRIBUTES.match(self.info) is not None

    def may_close(self, opener: "_Fence") -> bool:
        return not self.late and self.mark == opener.mark and self.length >= opener.length


@dataclass(slots=True)
class _Scanner:
    lines: Sequence[str]
    language: Language
    fences: list[_Fence] = field(default_factory=list)
    unclosed: set[tuple[str, int, bool]] = field(default_factory=set)

    def blocks(self) -> Iterator[Block]:
        offsets = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.fences = [f for i, text in enumerate(self.lines) if (f := _fence(i, text))]
        place = 0
        while place < len(self.fences):
            opener = self.fences[place]
            if opener.late and not (self.language.owns(opener.label) or opener.bare):
                place += 1
                continue
            if opener.mark == "'" and not self.language.owns(opener.label):
                place += 1
                continue
            block, place = self._block(place, offsets[min(opener.line + 1, len(self.lines))])
            yield self._labelled_inside(block)

    def _block(self, place: int, start: int) -> tuple[Block, int]:
        """Read the block that the fence at ``place`` opens; return the place of the next opener."""
        opener = self.fences[place]
        end, closed = self._end(place + 1, opener)
        owned = self.language.owns(opener.label)
        if self.language.is_python and owned and end < len(self.fences):
            end, closed = self._outside_strings(opener, end, closed)
        stop = self.fences[end].line if end < len(self.fences) else len(self.lines)
        code = _content(self.lines[opener.line + 1 : stop], opener)
        following = end + 1 if closed else end
        whole = self._without_glued_fence(code) if owned or not opener.label else code
        if whole != code:
            resumed = opener.line + 2 + whole.count("\n")
            inner = range(place + 1, end)
            following = next((i for i in inner if self.fences[i].line >= resumed), following)
            closed = True
        elif not closed:
            whole = _without_closing_tags(code)
            closed = end < len(self.fences) and self._is_whole(whole, owned)
        return Block(opener.label, whole, closed, opener.line, start, opener.info), following

    def _labelled_inside(self, block: Block) -> Block:
        """The block, with its label if that is alone in the first line."""
        first, newline, rest = block.code.partition("\n")
        if block.label or not newline or not self.language.owns(first.strip().lower()):
            return block
        start = block.start + len(first) + 1
        return replace(block, label=first.strip().lower(), code=rest, start=start)

    def _is_whole(self, code: str, owned: bool) -> bool:
        """Whether a block that another block's opening fence ends is complete all the same."""
        return owned and self.language.is_python and parse(code) is not None

    def _end(self, place: int, opener: _Fence) -> tuple[int, bool]:
        """Place of the fence that ends the block, and whether it closes it.

        A shorter fence than the opening one closes the block if nothing else does.
        """
        owned = self.language.owns(opener.label)
        key = (opener.mark, opener.length, owned)
        if key not in self.unclosed:
            end, closed = self._first_end(place, opener, owned)
            if end < len(self.fences):
                return end, closed
            self.unclosed.add(key)
        if opener.length > 3:
            shortest = _Fence(opener.line, 0, False, opener.mark, 3, opener.label)
            return self._first_end(place, shortest, owned)
        return len(self.fences), False

    def _first_end(self, place: int, opener: _Fence, owned: bool) -> tuple[int, bool]:
        for end in range(place, len(self.fences)):
            fence = self.fences[end]
            if fence.late:
                if self.language.owns(fence.label) and not self._is_text(fence):
                    return end, False
                continue
            if fence.may_close(opener):
                if fence.bare or not fence.opens(self.language):
                    return end, True
                if fence.length == opener.length:
                    return end, False
            if not owned and self.language.owns(fence.label) and fence.opens(self.language):
                return end, False
        return len(self.fences), False

    def _is_text(self, fence: _Fence) -> bool:
        """Whether a fence behind other text is in a comment, or begins a string."""
        before = self.lines[fence.line][: fence.indent]
        return before.lstrip().startswith(("#", "//")) or before.endswith(('"""', "'''"))

    def _outside_strings(self, opener: _Fence, end: int, closed: bool) -> tuple[int, bool]:
        """Move the end to a later fence if the one found is part of a string."""
        if not ends_inside_string(self._code(opener, end)):
            return end, closed
        for later in range(end + 1, min(end + 1 + _MAX_SKIPPED_FENCES, len(self.fences))):
            fence = self.fences[later]
            if fence.may_close(opener) and not ends_inside_string(self._code(opener, later)):
                whole = not fence.opens(self.language) and parse(self._code(opener, later))
                return (later, True) if whole else (end, closed)
        return end, closed

    def _code(self, opener: _Fence, end: int) -> str:
        return _content(self.lines[opener.line + 1 : self.fences[end].line], opener)

    def _without_glued_fence(self, code: str) -> str:
        """End a block at "print(x)```" if the text before the fence is complete."""
        if self.language.is_python:
            glued = _GLUED_FENCE.search(code)
            if glued and parse(code) is None and parse(code[: glued.end(1)]):
                return code[: glued.end(1)]
        elif found := _GLUED_IN_CPP.search(code):
            return code[: found.start() + 1]
        return code


def find_blocks(text: str, language: Language) -> list[Block]:
    """Find the fenced blocks of a text with "\\n" line ends, in order.

    A fence is three or more backticks or tildes at the start of a line, behind blanks or quote
    marks (">"); a fence labelled with the language may also be at the end of a line of text. A
    block ends at a fence of the same character that is at least as long as the opening one (or
    shorter, if there is none): at a bare one, at one with a tag or prose behind it, or at one that
    opens the next block with a known label. Inside a block of another language, any fence with the
    wanted label opens a block. The indentation of the opening fence is removed from every line of
    its block, as far as all lines have it. A fence inside a triple-quoted string does not end a
    Python block; a fence at the end of a line of code ends one that is complete there.
    """
    return list(_Scanner(text.split("\n"), language).blocks())


def _fence(number: int, line: str) -> _Fence | None:
    rest = line.lstrip(" \t>")
    if rest[:3] in ("```", "~~~", "'''"):
        match = _INFO.match(rest)
        if match and not (rest[0] == "`" and "`" in match[2]):  # otherwise a code span
            prefix = line[: len(line) - len(rest)]
            length = min(len(match[1]), _LONGEST_FENCE)
            label, info = _split_info(match[2])
            return _Fence(number, len(prefix), ">" in prefix, rest[0], length, label, info)
    if "```" not in line[-60:]:
        return None
    if late := _LATE_FENCE.search(line):
        return _Fence(number, late.start(), False, "`", 3, late[1].lower(), late=True)
    if colon := _AFTER_COLON.search(line):
        return _Fence(number, colon.start(), False, "`", 3, late=True)
    return None


def _split_info(info: str) -> tuple[str, str]:
    found = _LABEL.match(info)
    label = found[1].lower().removeprefix("language-").removeprefix("lang=") if found else ""
    return label, info[found.end() if found else 0 :].strip(" \t}") if label else info.strip()


def _content(lines: Sequence[str], opener: _Fence) -> str:
    """Join lines without the fence's quote marks or indentation, as far as all of them have it."""
    if opener.quoted:
        return "\n".join(_unquoted(line) for line in lines)
    common = min((_blanks(line) for line in lines if line.strip()), default=0)
    removed = min(opener.indent, common)
    return "\n".join(line[min(removed, _blanks(line)) :] for line in lines)


def _unquoted(line: str) -> str:
    rest = line.lstrip(" \t")
    return rest[1:].removeprefix(" ") if rest.startswith(">") else line


def _without_closing_tags(code: str) -> str:
    code = code.rstrip().removesuffix("```")
    for _ in range(3):
        if tag := _CLOSING_TAG.search(code[-30:]):
            code = code[: len(code) - len(tag[0])].rstrip()
    return code


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
