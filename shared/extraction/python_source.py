"""Looking at untrusted Python text without running it: does it parse, and what does it hold?"""

import ast
import warnings
from enum import IntEnum

from shared.extraction.names import defined_names

# Parsing happens in our own process and its cost grows with the text; no real answer is near this.
MAX_PARSED_CHARACTERS = 200_000

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Substance(IntEnum):
    """How much of an answer a text is, least first."""

    BROKEN = 0  # does not parse, or is too long to be parsed here
    VALUES = 1  # only names and literals, as in a sample of output
    STATEMENTS = 2
    ANSWER = 3  # defines a function or class, or reads standard input
    ENTRY_POINT = 4  # defines the function that is asked for


def parse(text: str) -> ast.Module | None:
    """Parse a text as a module; None where it is no Python or too long to look at."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are the answer's affair
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def ends_inside_string(text: str) -> bool:
    """Whether the text stops within a triple-quoted string."""
    if len(text) > MAX_PARSED_CHARACTERS or ('"""' not in text and "'''" not in text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return "unterminated triple-quoted" in str(error.msg)
    except (ValueError, RecursionError, MemoryError):
        return False
    return False


def returns_at_top(block: ast.Module | ast.FunctionDef) -> bool:
    """Whether a ``return`` or ``yield`` stands in the block itself, not in a function within it."""
    pending: list[ast.AST] = list(block.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    return False


def substance(tree: ast.Module | None, entry_point: str | None = None) -> Substance:
    if tree is None:
        return Substance.BROKEN
    if entry_point in defined_names(tree):
        return Substance.ENTRY_POINT
    if any(_is_definition_or_input(node) for node in ast.walk(tree)):
        return Substance.ANSWER
    return Substance.STATEMENTS if any(map(_does_something, tree.body)) else Substance.VALUES


def _is_definition_or_input(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "open":
            return bool(node.args) and isinstance(node.args[0], ast.Constant)
        return node.func.id == "input"
    return isinstance(node, _DEFINITIONS) or (
        isinstance(node, ast.Attribute) and node.attr == "stdin"
    )


def _does_something(statement: ast.stmt) -> bool:
    # "Complexity: O(n)" and "Output: 5" are annotations to Python and prose to everybody else.
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return not isinstance(statement, ast.Pass)
