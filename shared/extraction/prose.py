"""Python code in a text without fences: a program, a function's body, lines within prose."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence, Set

from shared.extraction.python_source import (
    Substance,
    dedent_program,
    parse,
    returns_at_top,
    substance,
)

_CONTINUATION = re.compile(r"\s|\Z|[)\]}]|(else|elif|except|finally)\b")
_TRIPLE_QUOTE = re.compile(r"\"\"\"|'''")
_INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{5,2000})\1(?!`)")


def bare_program(text: str) -> str | None:
    """The text without common indentation, if all of it is a program."""
    code, tree = dedent_program(text)
    if tree is None or returns_at_top(tree):
        return None
    return code if substance(tree) >= Substance.STATEMENTS else None


def function_body(text: str) -> str | None:
    """The text as the body of a function whose head is in the prompt, truncated at its end."""
    if "return" not in text and "yield" not in text:
        return None
    return next((c.rstrip() + "\n" for c in _possible_bodies(text) if _is_body(c)), None)


def _possible_bodies(text: str) -> Iterator[str]:
    lines = text.split("\n")
    outside = (i for i, line in enumerate(lines) if i and line[:1] not in ("", " ", "\t", "#"))
    cut = "\n".join(lines[: next(outside, len(lines))])
    if text[:1] in (" ", "\t"):
        yield from (text, cut)
        return
    # A server that strips completions removed the first line's indentation.
    yield "    " + text
    yield textwrap.indent(text, "    ")
    yield "    " + cut
    yield textwrap.indent(_leading_statements(lines), "    ")


def _leading_statements(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for unit in _units(lines):
        if parse("def _():\n" + textwrap.indent(unit, "    ") + "\n    pass") is None:
            break
        kept.append(unit)
    return "\n".join(kept)


def _is_body(text: str) -> bool:
    tree = parse("def _():\n" + text)
    function = tree.body[0] if tree else None
    return isinstance(function, ast.FunctionDef) and returns_at_top(function)


def python_lines(text: str, names: Set[str] = frozenset()) -> str | None:
    """Find the run of lines within prose with the most substance; the longest of equals."""
    best: str | None = None
    most = (Substance.BROKEN, 0)
    for run in code_runs(text):
        tree = parse(run)
        size = (substance(tree, names), run.count("\n"))
        if tree and size >= most and (size[0] >= Substance.ANSWER or any(map(_binds, tree.body))):
            best, most = run, size
    return best


def code_runs(text: str) -> Iterator[str]:
    """The parts of a text that are Python: runs of lines, indented paragraphs, code spans."""
    lines = text.split("\n")
    yield from _runs(lines)
    yield from _indented(lines)
    yield from (match[2] for match in _INLINE.finditer(text))


def _binds(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.AugAssign)


def _runs(lines: Sequence[str]) -> Iterator[str]:
    """Join adjacent top-level statements."""
    run: list[str] = []
    for unit in _units(lines):
        if _is_code(unit):
            run.append(unit)
        elif run:
            yield "\n".join(run).strip("\n")
            run = []
    if run:
        yield "\n".join(run).strip("\n")


def _indented(lines: Sequence[str]) -> Iterator[str]:
    """Paragraphs that are indented as a whole, without their indentation."""
    part: list[str] = []
    for line in [*lines, "end"]:
        if line[:1] in ("", " ", "\t"):
            part.append(line)
            continue
        code = textwrap.dedent("\n".join(part)).strip("\n")
        part = []
        if code and substance(parse(code)) >= Substance.STATEMENTS:
            yield code


def _units(lines: Sequence[str]) -> Iterator[str]:
    """Split lines where a top-level statement may begin."""
    unit: list[str] = []
    in_string = False
    for line in lines:
        decorated = bool(unit) and unit[-1].startswith("@")
        if unit and not in_string and not decorated and not _CONTINUATION.match(line):
            yield "\n".join(unit)
            unit = []
        unit.append(line)
        in_string ^= len(_TRIPLE_QUOTE.findall(line)) % 2 == 1
    yield "\n".join(unit)


def _is_code(unit: str) -> bool:
    tree = parse(unit)
    comment_only = tree is not None and not tree.body
    return comment_only or substance(tree) >= Substance.STATEMENTS
