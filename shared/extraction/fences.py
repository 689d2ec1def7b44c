"""Parser for fenced Markdown code blocks: CommonMark's rules, lenient to mistakes of models."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from shared.extraction.languages import Language, Literals, is_known_label
from shared.extraction.python_source import parse

_MARK = re.compile(r"`{3,}|~{3,}")
_LABEL = re.compile(r"[\s{.]*((?:language-|lang=)?[A-Za-z0-9_+#./-]*)")
_ATTRIBUTES = re.compile(r"[\s\w.{}=\"':,;/\\#()\[\]+-]*\Z")
# Text before a fence that is part of the document: quotation, list, emphasis.
_PREFIX = re.compile(r"[ \t>]*(?:(?:\d{1,3}[.)]|[-*+•])[ \t]+)?\**\Z")
_BEHIND_CODE = re.compile(r"[ \t]*(?:<[^\n]*|[.*})\]]{1,3})?\Z")
_CLOSING_TAG = re.compile(r"(?:</[A-Za-z_]{1,20}>|\[/[A-Z]{1,20}\]|```)\s*\Z")
_FIRST_LINE = ("import ", "from ", "def ", "class ", "@", "async def ", "#include")
_PROSE = re.compile(
    r"^[ \t]{0,4}(?!(?:from|import|if|for|while|def|class|return|assert|del|not|with|async|await"
    r"|raise|global|yield|match|case)\b)(?:\*\*|#{2,6} |[-*•] |\d{1,2}\. |[A-Z][a-z]+:"
    r"|[\w'’`*-]+[,:]?(?: [\w'’`*-]+[,.:;]?){2})[^\n]*(?<![;{}(,])$",
    re.MULTILINE,
)
_MOST_PROSE = 8  # lines that may begin the prose behind an unclosed block
_LONGEST_LINE = 1000  # with a block
_LONGEST_FENCE = 10  # longer ones count as so long


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        label: Label in lower case, or "".
        opening: Offset of the line with the opening fence.
        end: Offset behind the block.
    """

    label: str
    code: str
    closed: bool
    opening: int
    end: int


@dataclass(frozen=True, slots=True)
class _Fence:
    """A fence; ``line`` and ``end`` are the offsets of its line, ``at`` is that of its mark."""

    line: int
    at: int
    end: int
    mark: str
    length: int
    before: str
    behind: str
    label: str
    info: str

    @property
    def alone(self) -> bool:
        """Whether only blanks, quotation marks or a list's mark are before it."""
        return not self.before or _PREFIX.match(self.before) is not None

    @property
    def bare(self) -> bool:
        return not self.label and not self.info

    @property
    def is_inline(self) -> bool:
        return self.mark * 3 in self.behind

    def opens(self, language: Language) -> bool:
        """Whether it begins a block even where one is open."""
        is_language = language.owns(self.label) or is_known_label(self.label)
        return is_language and _ATTRIBUTES.match(self.info) is not None


def find_blocks(text: str, language: Language) -> list[Block]:
    """Find the fenced blocks of a text with "\\n" line ends, in order.

    A fence begins a line, behind blanks, quote marks (">") or a list's mark; one with the wanted
    label, or bare behind a colon, may also follow text. A block ends at a bare fence,
    or one with a tag or prose behind it, that has the same character and is at least as long as the
    opening one (or shorter or of the other character, if there is none); at a fence behind its last
    line of code; or at one that opens the next block with a known label. A fence in a string or
    comment ends nothing. A block of another language ends at any fence with the wanted label. A
    block may be in one line. The fence's indentation is removed as far as all lines have it.
    """
    if "```" not in text and "~~~" not in text:
        return []
    return list(_Scanner(text, language).blocks())


class _Scanner:
    def __init__(self, text: str, language: Language) -> None:
        self._text = text
        self._language = language
        self._fences = list(_fences(text))
        self._literals = Literals(text, language)
        self._unclosed: set[tuple[str, int, bool]] = set()

    def blocks(self) -> Iterator[Block]:
        place = 0
        while place < len(self._fences):
            fence = self._fences[place]
            place += 1
            if fence.is_inline:
                yield self._inline(fence)
            elif self._may_open(fence):
                block, place = self._block(fence, place)
                yield block

    def _may_open(self, fence: _Fence) -> bool:
        if fence.alone:
            return True
        if fence.bare:
            return fence.before.rstrip("* \t").endswith(":")
        return self._language.owns(fence.label) and not fence.info

    def _inline(self, fence: _Fence) -> Block:
        code = fence.behind.lstrip(fence.mark).partition(fence.mark * 3)[0].strip()
        label, _, rest = code.partition(" ")
        owned = bool(rest) and self._language.owns(label.lower())
        code = rest.strip() if owned else code
        return Block(label.lower() if owned else "", code, True, fence.line, fence.end)

    def _block(self, opener: _Fence, place: int) -> tuple[Block, int]:
        """Read the block that a fence opens; return it with the place of the next fence."""
        owned = self._language.owns(opener.label)
        place, closed = self._end(opener, place, owned)
        last = self._fences[place] if place < len(self._fences) else None
        start = end = min(opener.end + 1, len(self._text))
        if last is None:
            end = len(self._text)
        elif last.alone or not closed:
            end = max(start, last.line - 1)
        else:  # the fence is at the end of the last line of code
            end = last.at
        label, code = opener.label, _without_indentation(self._text[start:end], opener)
        following, behind = place, end
        if last and closed:
            following, behind = place + 1, last.end
        elif last:
            closed = owned and self._is_whole(code)
        else:
            code = self._without_rest(code)
        first, newline, rest = code.partition("\n")
        if owned and opener.info.startswith(_FIRST_LINE):
            code = f"{opener.info}\n{code}"
        elif (owned or not label) and newline and self._language.owns(first.strip().lower()):
            label, code = first.strip().lower(), rest
        return Block(label, code, closed, opener.line, behind), following

    def _end(self, opener: _Fence, place: int, owned: bool) -> tuple[int, bool]:
        """Place of the fence that ends the block, and whether it closes it."""
        for length in dict.fromkeys((opener.length, 3)):
            key = (opener.mark, length, owned)
            if key not in self._unclosed:
                end, closed = self._first_end(opener, length, place, owned)
                if end < len(self._fences):
                    return end, closed
                self._unclosed.add(key)
        return len(self._fences), False

    def _first_end(self, opener: _Fence, length: int, place: int, owned: bool) -> tuple[int, bool]:
        is_code = owned or not opener.label
        self._literals.restart(opener.end)
        for end in range(place, len(self._fences)):
            fence = self._fences[end]
            if fence.is_inline or (is_code and self._literals.around(fence.at)):
                continue
            same = fence.mark == opener.mark and fence.length >= length
            if not fence.alone:
                if self._language.owns(fence.label) and not fence.info:
                    return end, False
                if is_code and same and _BEHIND_CODE.match(fence.behind):
                    return end, True
            elif same:
                return end, not fence.opens(self._language)
            elif is_code and fence.bare and fence.mark != opener.mark:
                return end, True
            elif not owned and self._language.owns(fence.label) and fence.opens(self._language):
                return end, False
        return len(self._fences), False

    def _is_whole(self, code: str) -> bool:
        if self._language.is_python:
            return parse(code) is not None
        return code.rstrip().endswith(("}", ";")) and code.count("{") == code.count("}")

    def _without_rest(self, code: str) -> str:
        """An unclosed block without closing tags and prose behind the program."""
        while tag := _CLOSING_TAG.search(code, max(0, len(code) - 40)):
            code = code[: tag.start()].rstrip()
        for prose in islice(() if self._is_whole(code) else _PROSE.finditer(code), _MOST_PROSE):
            head = code[: prose.start()].rstrip()
            if head and self._is_whole(head):
                return head
        return code


def _fences(text: str) -> Iterator[_Fence]:
    line = end = read = -1
    for mark in _MARK.finditer(text):
        if mark.start() < read:  # a second one in the same line
            continue
        if mark.start() > end:
            line = text.rfind("\n", 0, mark.start()) + 1
            end = text.find("\n", mark.end())
            end = len(text) if end < 0 else end
        before = text[max(line, mark.start() - _LONGEST_LINE) : mark.start()]
        behind = text[mark.end() : min(end, mark.end() + _LONGEST_LINE)]
        label, info = _split_info(behind)
        length = min(len(mark[0]), _LONGEST_FENCE)
        closing = behind.find(mark[0])
        read = end if closing < 0 else mark.end() + closing + len(mark[0])
        yield _Fence(line, mark.start(), end, mark[0][0], length, before, behind, label, info)


def _split_info(info: str) -> tuple[str, str]:
    match = _LABEL.match(info)
    label = match[1].lower().removeprefix("language-").removeprefix("lang=") if match else ""
    return label, info[match.end() if match else 0 :].strip(" \t}") if label else info.strip()


def _without_indentation(code: str, opener: _Fence) -> str:
    """Code without the fence's quote marks or indentation, as far as all lines have it."""
    lines = code.split("\n")
    if ">" in opener.before and opener.alone:
        return re.sub(r"^[ \t]*> ?", "", code, flags=re.MULTILINE)
    if not opener.before:
        return code
    common = min((_blanks(line) for line in lines if line.strip()), default=0)
    removed = min(len(opener.before), common)
    return "\n".join(line[min(removed, _blanks(line)) :] for line in lines)


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
