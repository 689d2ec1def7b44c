"""Repair of code that was changed on its way: escapes, prompts, line numbers, invisible characters.

A repair is used only if the text is no program without it and is one with it. What a model may have
meant wrongly (indentation, quotation marks, missing code) is never changed.
"""

import html
import re
import textwrap
from collections.abc import Callable, Iterator

_WIDE_BLANKS = "".join(map(chr, (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_INVISIBLE = {
    **dict.fromkeys(map(ord, _WIDE_BLANKS), " "),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
}
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,4}|#x[0-9a-fA-F]{1,4});")
_ESCAPE = re.compile(r"\\([nt\"'\\])")
_ESCAPED = {"n": "\n", "t": "\t"}
_PROMPT = re.compile(r"[ \t]*(?:>>>|\.{3,8}:?|In[ ]?\[\d*\]:)[ ]?")
_SESSION = re.compile(r"\s*(?:>>>|In[ ]?\[\d*\]:)")
_LINE_NUMBER = re.compile(r"[ \t]{0,8}(\d{1,5})[ \t]{0,4}[.:|)](?:[ \t]|$)")
_DIFF_HEADER = ("@@", "+++", "---", "diff ", "index ", "\\ No newline")


def without_invisible(text: str) -> str:
    """Replace unusual blanks by a space; remove marks of byte order and of zero width."""
    return text if text.isascii() else text.translate(_INVISIBLE)


def is_session(code: str) -> bool:
    """Whether a text begins with an interpreter's prompt."""
    return _SESSION.match(code) is not None


def repaired(code: str, is_program: Callable[[str], bool]) -> str | None:
    """The text after the first repair that makes it a program; None if none does."""
    visible = without_invisible(code)
    if visible != code and is_program(visible):
        return visible
    for repair in (_unescape_html, _without_line_numbers, _apply_diff, _split_escaped, _typed):
        changed = repair(visible)
        if changed is not None and is_program(changed := textwrap.dedent(changed)):
            return changed
    return None


def _unescape_html(code: str) -> str | None:
    return without_invisible(html.unescape(code)) if _ENTITY.search(code) else None


def _without_line_numbers(code: str) -> str | None:
    lines = code.strip("\n").split("\n")
    matches = [_LINE_NUMBER.match(line) for line in lines]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) < len(lines) or numbers != list(range(numbers[0], numbers[0] + len(lines))):
        return None
    return "\n".join(
        line[match.end() :] for line, match in zip(lines, matches, strict=True) if match
    )


def _apply_diff(code: str) -> str | None:
    lines = [line for line in code.split("\n") if not line.startswith(_DIFF_HEADER)]
    if not any(line.startswith("+") for line in lines):
        return None
    if any(line[:1] not in ("", "+", "-", " ", "\t") for line in lines):
        return None
    return "\n".join(line[1:] for line in lines if not line.startswith("-"))


def _split_escaped(code: str) -> str | None:
    r"""Code in one line with "\n" for line ends, as in JSON."""
    line = code.strip()
    if "\n" in line or "\\n" not in line:
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), line)


def _typed(code: str) -> str | None:
    """The input of an interpreter session."""
    return "\n".join(_inputs(code)) if is_session(code) else None


def _inputs(code: str) -> Iterator[str]:
    for line in code.split("\n"):
        if prompt := _PROMPT.match(line):
            yield line[prompt.end() :]
