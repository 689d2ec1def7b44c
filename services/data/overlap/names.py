"""The names that a text's own Python code gives to things, which a copy may have changed."""

import ast
import builtins
import keyword
import re
import textwrap
import warnings
from collections.abc import Iterator

# No name can begin with a digit, so no text has this word by itself.
PLACEHOLDER = "0name"
BUILTINS = frozenset(dir(builtins)) | frozenset(keyword.kwlist)

_FENCE = re.compile(r"^```[ \t]*+(?:python3?|py)?[ \t]*+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\b(?:def|class|assert|lambda)\b|>>>|```")
_DEFINED = re.compile(r"\b(?:def|class)[ \t]+(\w+)")
# Nothing but the tests tells what MBPP's function is to be called.
_TEST_LINE = re.compile(r"^[ \t]*(?:assert\b|>>>)(.*)$", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])([^\W\d]\w*)\(")
_IDENTIFIER = re.compile(r"(?<!\w)[^\W\d]\w*")
# Far longer than any prompt; the parser needs many times the memory of its text.
_PARSED_LENGTH = 100_000


def without_names(text: str) -> str | None:
    """Put a placeholder wherever a name of the text's own code stands, in its prose as well.

    Builtins, attributes, keywords and literals stay. None where no code names anything.
    """
    names = own_names(text)
    if not names:
        return None

    def replaced(found: re.Match[str]) -> str:
        return PLACEHOLDER if found[0] in names else found[0]

    return _IDENTIFIER.sub(replaced, text)


def own_names(text: str) -> frozenset[str]:
    """Collect functions, classes, parameters and variables, and what tests call."""
    if not _CODE.search(text):
        return frozenset()
    names = {name for code in (text, *_FENCE.findall(text)) for name in _bound(code)}
    names.update(_DEFINED.findall(text))
    for line in _TEST_LINE.findall(text):
        names.update(name for name in _CALLED.findall(line) if name not in BUILTINS)
    return frozenset(names)


def _bound(code: str) -> Iterator[str]:
    """Yield the names that the code binds; none where it is no Python."""
    tree = _parse(code)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _parse(code: str) -> ast.Module | None:
    if len(code) > _PARSED_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes such as "\d" in other people's strings
            return ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
