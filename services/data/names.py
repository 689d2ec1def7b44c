"""Names that the code of a text defines."""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

from services.data.tokens import BUILTINS

# Names cannot begin with a digit, so this is never a name.
PLACEHOLDER = "0name"

_FENCE = re.compile(r"^```[ \t]*+(?:python3?|py)?[ \t]*+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\b(?:def|class|assert|lambda)\b|>>>|```")
_DEFINED = re.compile(r"\b(?:def|class)[ \t]+(\w+)")
# In MBPP only the tests name the function.
_TEST_LINE = re.compile(r"^[ \t]*(?:assert\b|>>>)(.*)$", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])([^\W\d]\w*)\(")
_IDENTIFIER = re.compile(r"(?<!\w)[^\W\d]\w*")
# In characters, far beyond any prompt; the parser needs many times the memory of its text.
_PARSED_LENGTH = 100_000


def without_names(text: str) -> str | None:
    """Replace the names that the text's own code defines by a placeholder, in prose as well.

    Builtins, attributes, keywords and literals are kept. None if no code defines a name.
    """
    names = own_names(text)
    if not names:
        return None

    def replaced(match: re.Match[str]) -> str:
        return PLACEHOLDER if match[0] in names else match[0]

    return _IDENTIFIER.sub(replaced, text)


def own_names(text: str) -> frozenset[str]:
    """Collect the names that code defines or binds, and the functions that tests call."""
    if not _CODE.search(text):
        return frozenset()
    names = {name for code in (text, *_FENCE.findall(text)) for name in bound_names(code)}
    names.update(_DEFINED.findall(text))
    for line in _TEST_LINE.findall(text):
        names.update(name for name in _CALLED.findall(line) if name not in BUILTINS)
    return frozenset(names)


def bound_names(code: str) -> frozenset[str]:
    """Collect the names that the code binds; none if it is not Python."""
    return frozenset(_bound(_parse(code)))


def _bound(tree: ast.Module | None) -> Iterator[str]:
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
            warnings.simplefilter("ignore")  # invalid escapes such as "\d" in the code
            return ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
