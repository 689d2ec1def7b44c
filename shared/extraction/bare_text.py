"""Finding Python in a completion that marks no code: programs, function bodies, code amid prose."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence

from shared.extraction.python_source import Substance, parse, returns_at_top, substance


def bare_program(text: str) -> str | None:
    """The text, less common indentation, if the whole of it is a program."""
    code, tree = dedent_program(text)
    if tree is None or returns_at_top(tree):
        return None
    return code if substance(tree) >= Substance.STATEMENTS else None


def dedent_program(code: str) -> tuple[str, ast.Module | None]:
    """Take off common indentation where that makes definitions of it; a bare body keeps it."""
    tree = parse(code)
    if tree is None and code.lstrip("\n")[:1] in (" ", "\t"):
        text = textwrap.dedent(code)
        dedented = parse(text)
        if dedented and not returns_at_top(dedented) and substance(dedented) >= Substance.ANSWER:
            return text, dedented
    return code, tree


def function_body(text: str) -> str | None:
    """The text as the rest of a function whose head is in the prompt, cut where that ends."""
    if text[:1] in (" ", "\t"):
        lines = text.split("\n")
        outside = (i for i, line in enumerate(lines) if line[:1] not in ("", " ", "\t", "#"))
        candidates = [text, "\n".join(lines[: next(outside, len(lines))])]
    else:  # a server that strips completions took the first line's indentation
        candidates = ["    " + text, textwrap.indent(text, "    ")]
    return next((c.rstrip() + "\n" for c in candidates if _is_body(c)), None)


def _is_body(text: str) -> bool:
    tree = parse("def _():\n" + text)
    function = tree.body[0] if tree else None
    return isinstance(function, ast.FunctionDef) and returns_at_top(function)


def python_lines(text: str, entry_point: str | None = None) -> str | None:
    """The stretch of whole lines within prose that is most of an answer, the longest of equals."""
    best: str | None = None
    most = (Substance.BROKEN, 0)
    for run in _runs(text.split("\n")):
        tree = parse(run)
        size = (substance(tree, entry_point), run.count("\n"))
        if tree and size >= most and (size[0] >= Substance.ANSWER or any(map(_binds, tree.body))):
            best, most = run, size
    return best


def _binds(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.AugAssign)


def _runs(lines: Sequence[str]) -> Iterator[str]:
    """Join neighbouring top-level statements."""
    run: list[str] = []
    for unit in _units(lines):
        if _is_code(unit):
            run.append(unit)
        elif run:
            yield "\n".join(run).strip("\n")
            run = []
    if run:
        yield "\n".join(run).strip("\n")


_GOES_ON = re.compile(r"\s|\Z|[)\]}]|(else|elif|except|finally)\b")
_TRIPLE_QUOTE = re.compile(r"\"\"\"|'''")


def _units(lines: Sequence[str]) -> Iterator[str]:
    """Split lines where a top-level statement may begin."""
    unit: list[str] = []
    in_string = False
    for line in lines:
        decorated = bool(unit) and unit[-1].startswith("@")
        if unit and not in_string and not decorated and not _GOES_ON.match(line):
            yield "\n".join(unit)
            unit = []
        unit.append(line)
        in_string ^= len(_TRIPLE_QUOTE.findall(line)) % 2 == 1
    yield "\n".join(unit)


def _is_code(unit: str) -> bool:
    tree = parse(unit)
    comment_only = tree is not None and not tree.body
    return comment_only or substance(tree) >= Substance.STATEMENTS
