"""Code in a text without fences: a program, a function's body, lines within prose."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence, Set

from shared.extraction.python_source import Source, compiles, parse

_CONTINUATION = re.compile(r"\s|\Z|[)\]}]|(else|elif|except|finally)\b")
_TRIPLE_QUOTE = re.compile(r"\"\"\"|'''")
_INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{5,2000})\1(?!`)")
_MAYBE_CODE = re.compile(r"\b(?:def|class|import|lambda|print)\b|=|\w\(")


def bare_program(text: str) -> str | None:
    """The text without common indentation, if all of it is a program."""
    indented = text[:1] in (" ", "\t")
    source = Source(textwrap.dedent(text) if indented else text)
    return source.code if source.is_program and (source.has_substance or not indented) else None


def function_body(text: str) -> str | None:
    """The text as the body of a function whose head is in the prompt, truncated at its end."""
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
    if "return" not in text and "yield" not in text:
        return False
    return compiles("def _():\n" + text) and not compiles(textwrap.dedent(text))


def code_runs(text: str) -> list[str]:
    """The parts of a text that are Python: runs of lines, indented paragraphs, code spans."""
    if not _MAYBE_CODE.search(text):
        return []
    lines = text.split("\n")
    spans = (match[2] for match in _INLINE.finditer(text))
    return list(dict.fromkeys([*_runs(lines), *_indented(lines), *spans]))


def best_run(runs: Sequence[str], names: Set[str]) -> str | None:
    """The run of lines with the most substance; the longest of equals."""
    best, most = None, (0, 0)
    for source in map(Source, runs):
        rank = 0
        if names & {*source.definitions, *source.bound}:
            rank = 3
        elif source.has_substance:
            rank = 2
        elif any(isinstance(s, ast.Import | ast.ImportFrom | ast.Assign) for s in source.body):
            rank = 1
        size = (rank, source.code.count("\n"))
        if rank and source.tree and size >= most:
            best, most = source.code, size
    return best


def _runs(lines: Sequence[str]) -> Iterator[str]:
    """Join adjacent top-level statements."""
    run: list[str] = []
    for unit in (*_units(lines), "end of text"):
        source = Source(unit)
        if source.has_statements or (source.tree and not source.body):
            run.append(unit)
        elif run:
            yield "\n".join(run).strip("\n")
            run = []


def _indented(lines: Sequence[str]) -> Iterator[str]:
    """Paragraphs that are indented as a whole, without their indentation."""
    part: list[str] = []
    for line in [*lines, "end"]:
        if line[:1] in ("", " ", "\t"):
            part.append(line)
            continue
        code = textwrap.dedent("\n".join(part)).strip("\n")
        part = []
        if code and Source(code).has_statements:
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
