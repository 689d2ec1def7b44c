"""Code extraction from a completion by SandboxFusion's rules.

The rules keep all peculiarities of the original, because verdicts depend on them, and are unrelated
to Plumbline's own rules in ``shared.extraction``. The original's regular expressions can take
quadratic time or worse; this implementation is linear in the length of the text.

Source: SandboxFusion 469de08, ``sandbox/utils/extraction.py``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Fence tags of the languages that this server runs. Case matters: the original knows "PY" but not
# "PYTHON". To it "javascript" is another language than Node.js.
_TAGS = {
    "python": ("python", "Python", "PY", "py", "python3", "Python3"),
    "cpp": ("cpp", "Cpp", "CPP", "c++", "C++"),
    "bash": ("bash", "Bash", "BASH", "sh", "shell"),
    "nodejs": ("JS", "js"),
    "java": ("java", "Java"),
    "go": ("go", "Go"),
    "rust": ("rust", "Rust", "rs"),
}
_LANGUAGES = {tag: language for language, tags in _TAGS.items() for tag in tags}

_FENCE = "```"
_CLOSING_FENCE = re.compile(r"\n[^\S\n]*```")
_ENTRY_POINTS = {"python": 'if __name__ == "__main__":', "cpp": "int main()"}
_EXAMPLE = "# Example usage"
_HEAD = re.compile("(?:def|class) .")
_BEFORE_HEAD = re.compile("(?:import|from|#).")


@dataclass(frozen=True)
class Block:
    """A code block; ``language`` is empty if the fence has no known tag."""

    language: str
    code: str


def in_language(completion: str, language: str) -> str:
    """Return the first block in ``language``, else the first in any language, else "".

    Source: ``default_extract_helper`` without custom logic.
    """
    first: Block | None = None
    for block in _blocks(completion, language):
        if block.language == language:
            return block.code
        first = first or block
    return first.code if first else ""


def first_block(completion: str, language: str) -> str:
    """Return the first block in any language, without carriage returns and the entry point.

    Source: ``extract_code_from_freeform_completion`` with ``first_block_only``.
    """
    block = next(_blocks(completion, language), None)
    return without_entry_point(block.code.replace("\r", ""), language) if block else ""


def without_entry_point(code: str, language: str) -> str:
    """Return the code before the main guard or ``int main()``, and before an example of use.

    Source: ``remove_entripoints``.
    """
    for mark in (_ENTRY_POINTS.get(language), _EXAMPLE):
        if mark and mark in code:
            code = code.partition(mark)[0].strip()
    return code


def _blocks(text: str, language: str) -> Iterator[Block]:
    """Yield complete fenced blocks, else an unclosed one, else unfenced code.

    The line right after an opening fence cannot be the closing fence.
    """
    start, tag, begin = 0, "", 0
    while opening := _opening(text, start):
        tag, begin = opening
        closing = _CLOSING_FENCE.search(text, begin)
        if closing is None:
            break
        yield Block(tag, _without_blank_lines(text[begin : closing.start()]))
        start = closing.end()
    if opening and not start:
        yield Block(tag, text[begin:])
    elif not start:
        yield from _unfenced(text, language)


def _opening(text: str, start: int) -> tuple[str, int] | None:
    """Return the language of the next opening fence, and the offset of its content."""
    fence = text.find(_FENCE, start)
    newline = text.find("\n", fence) if fence >= 0 else -1
    if newline < 0:
        return None
    tag = text[fence + len(_FENCE) : newline].strip()
    return _LANGUAGES.get(tag, ""), newline + 1


def _without_blank_lines(code: str) -> str:
    """Remove blank lines before the closing fence, but keep spaces at the end of the last line."""
    kept = code.rstrip()
    blanks, newline, _ = code[len(kept) :].partition("\n")
    return kept + blanks if newline else code


def _unfenced(text: str, language: str) -> Iterator[Block]:
    lines = [line for line in text.split("\n") if line.strip()]
    if language == "python":
        yield from _definitions(lines)
    elif language == "bash":
        yield Block("bash", _joined(lines))


def _definitions(lines: list[str]) -> Iterator[Block]:
    """Yield each top-level definition with its body and the imports and comments before it."""
    start = index = 0
    while index < len(lines):
        if _HEAD.match(lines[index]):
            end = _body_end(lines, index + 1)
            if end > index + 1:
                yield Block("python", _joined(lines[start:end]))
            start = index = end
        else:
            index += 1
            if not _BEFORE_HEAD.match(lines[index - 1]):
                start = index


def _body_end(lines: list[str], index: int) -> int:
    while index < len(lines) and lines[index][0].isspace():
        index += 1
    return index


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
