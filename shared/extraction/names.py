"""The names that a Python text defines, and those that it uses and does not have."""

import ast
import builtins
import re
import sys
from collections.abc import Iterator

_BUILTINS = frozenset(dir(builtins)) | {"__file__"}
_DEFINITION = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)", re.MULTILINE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def defined_names(tree: ast.Module) -> frozenset[str]:
    """The functions, lambdas and classes at the top of a module, and their methods."""
    return frozenset(name for statement in tree.body for name in _definitions(statement))


def apparent_names(code: str, tree: ast.Module | None) -> frozenset[str]:
    """The same of a text; one that does not parse defines what its lines look like."""
    return frozenset(_DEFINITION.findall(code)) if tree is None else defined_names(tree)


def _definitions(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        yield statement.name
    if isinstance(statement, ast.ClassDef):
        yield from (node.name for node in statement.body if isinstance(node, _FUNCTIONS))
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def free_names(tree: ast.Module) -> frozenset[str]:
    """The names that a module uses, that are no builtins, and that it binds in no scope."""
    used: set[str] = set()
    bound: set[str] = set()
    augmented: set[ast.Name] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return frozenset()  # nobody knows what it binds
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            augmented.add(node.target)
        if isinstance(node, ast.Name):
            reads = isinstance(node.ctx, ast.Load) or node in augmented
            (used if reads else bound).add(node.id)
        else:
            bound.update(_bound_by(node))
    return frozenset(used - bound - _BUILTINS)


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.arg():
            yield node.arg
        case ast.Import():
            yield from ((a.asname or a.name).partition(".")[0] for a in node.names)
        case ast.ImportFrom() if _is_standard(node):
            yield from (a.asname or a.name for a in node.names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name


def _is_standard(node: ast.ImportFrom) -> bool:
    # "from solution import solve" in a test means the answer before it.
    return (node.module or "").partition(".")[0] in sys.stdlib_module_names
