"""Markdown parser for the subset that the documents use: headings, code, links, tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


@dataclass
class Section:
    """A heading with its content up to the next one; ``level`` 0 is the part before the first."""

    level: int
    title: str
    code: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def spans(self) -> set[str]:
        """Inline code, with white space normalized."""
        return {" ".join(span[1].split()) for span in _SPAN.findall(self.text)}

    @property
    def links(self) -> list[str]:
        """Targets of links and images outside code."""
        return _LINK.findall(_SPAN.sub("", f"{self.title}\n{self.text}"))

    @property
    def table_rows(self) -> int:
        return sum(line.startswith("|") for line in self.text.splitlines())

    @property
    def slug(self) -> str:
        """The anchor that GitHub derives from the heading."""
        return _NOT_IN_SLUG.sub("", self.title.lower()).replace(" ", "-")


def sections(markdown: str) -> list[Section]:
    result = [Section(0, "")]
    for is_code, lines in _blocks(markdown.splitlines()):
        if is_code:
            result[-1].code.append("\n".join(lines))
            continue
        for line in lines:
            if heading := _HEADING.fullmatch(line):
                result.append(Section(len(heading[1]), heading[2]))
            else:
                result[-1].text += line + "\n"
    return result


def _blocks(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Code blocks, fenced or indented by four, and the lines between them."""
    place, blank = 0, True
    while place < len(lines):
        end = _code_end(lines, place, blank)
        if end > place:
            block = lines[place:end]
            while not block[-1].strip():
                block.pop()
            yield True, block
            place, blank = end, True
            continue
        yield False, [lines[place]]
        blank = not lines[place].strip()
        place += 1


def _code_end(lines: list[str], start: int, blank_above: bool) -> int:
    """The line after the code block that begins at ``start``; ``start`` if there is none."""
    if fence := _FENCE.match(lines[start]):
        closing = (n for n in range(start + 1, len(lines)) if lines[n].strip() == fence[1])
        return next(closing, len(lines) - 1) + 1
    if not (blank_above and lines[start].startswith("    ")):
        return start
    end = start
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    return end
