"""Sections of Markdown: headings, code, links, rows of tables."""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
_PARSER = MarkdownIt("commonmark").enable("table")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


@dataclass
class Section:
    """A heading with its content up to the next one; ``level`` 0 is the part before the first.

    ``code`` has the text of code blocks, below the word after the fence if there is one; ``spans``
    inline code; ``links`` the targets of links and images.
    """

    level: int
    title: str
    code: list[str] = field(default_factory=list)
    text: str = ""
    spans: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    table_rows: int = 0

    @property
    def slug(self) -> str:
        """The anchor that GitHub derives from the heading."""
        return _NOT_IN_SLUG.sub("", self.title.lower()).replace(" ", "-")


def sections(markdown: str) -> list[Section]:
    result = [Section(0, "")]
    for before, token in pairwise([Token("", "", 0), *_PARSER.parse(markdown)]):
        if before.type == "heading_open":
            result.append(Section(int(before.tag[1]), token.content))
        elif token.type == "inline":
            result[-1].text += token.content + "\n"
        section = result[-1]
        if token.type in ("fence", "code_block"):
            section.code.append(f"{token.info}\n{token.content}")
        section.table_rows += token.type == "tr_open"
        for child in token.children or ():
            if child.type == "code_inline":
                section.spans.add(" ".join(child.content.split()))
            for name in ("href", "src"):
                section.links += [unquote(str(child.attrs[name]))] if name in child.attrs else []
    return result
