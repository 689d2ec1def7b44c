"""Static analysis of untrusted Python source: syntax, defined and missing names. Nothing is run."""

import ast
import builtins
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence, Set
from enum import IntEnum

# Parsing happens in the judge's own process, so its cost is limited; real answers are much shorter.
MAX_PARSED_CHARACTERS = 200_000

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_BUILTINS = frozenset(dir(builtins)) | {"__file__"}
_DEFINITION = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)", re.MULTILINE)
_PLACE_HOLDER = re.compile(r"#.*\b(?:todo|your (?:code|solution)|implement)\b", re.IGNORECASE)


class Substance(IntEnum):
    """Rank of a text as an answer, lowest first."""

    BROKEN = 0  # does not parse, or is too long to be parsed here
    VALUES = 1  # only names and literals, as in a sample of output
    STATEMENTS = 2
    ANSWER = 3  # defines a function or class, or reads standard input
    ENTRY_POINT = 4  # defines the function that the tests call


def parse(text: str) -> ast.Module | None:
    """Parse a text as a module; None if it is not Python or too long."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in the answer
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
    """Whether a ``return`` or ``yield`` belongs to the block, not to a function within it."""
    pending: list[ast.AST] = list(block.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    return False


def substance(tree: ast.Module | None, names: Set[str] = frozenset()) -> Substance:
    if tree is None:
        return Substance.BROKEN
    if names & defined_names(tree):
        return Substance.ENTRY_POINT
    if any(_is_definition_or_input(node) for node in ast.walk(tree)):
        return Substance.ANSWER
    return Substance.STATEMENTS if any(map(_does_something, tree.body)) else Substance.VALUES


def _is_definition_or_input(node: ast.AST) -> bool:
    return isinstance(node, _DEFINITIONS) or _is_input(node)


def _is_input(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "open":
            return bool(node.args) and isinstance(node.args[0], ast.Constant)
        return node.func.id == "input"
    if isinstance(node, ast.Name):
        return node.id == "stdin"
    return isinstance(node, ast.Attribute) and node.attr == "stdin"


def reads_input(tree: ast.AST) -> bool:
    """Whether code reads standard input, and does not put a text of its own in its place."""
    nodes = list(ast.walk(tree))
    replaced = any(
        isinstance(node, ast.Attribute) and node.attr == "stdin" and isinstance(node.ctx, ast.Store)
        for node in nodes
    )
    return not replaced and any(map(_is_input, nodes))


def writes_output(tree: ast.AST) -> bool:
    """Whether code calls ``print`` or something that writes, or names ``stdout``."""
    return any(
        (isinstance(node, ast.Name) and node.id in ("print", "stdout"))
        or (isinstance(node, ast.Attribute) and node.attr in ("stdout", "write", "writelines"))
        for node in ast.walk(tree)
    )


def is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef, code: str) -> bool:
    """Whether a function has no content: nothing but a docstring, ``pass``, ``...`` or an error."""
    if any(isinstance(node, ast.Return) and node.value for node in function.body):
        lines = code.split("\n")[function.lineno - 1 : function.end_lineno]
        return len(function.body) <= 2 and any(map(_PLACE_HOLDER.search, lines))
    return all(map(_is_nothing, function.body))


def _is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return statement.exc is not None and "NotImplemented" in ast.unparse(statement.exc)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Return) and statement.value is None
    )


def _does_something(statement: ast.stmt) -> bool:
    # Prose such as "Complexity: O(n)" and "Output: 5" parses as annotations.
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return not isinstance(statement, ast.Pass)


# Names


def defined_names(tree: ast.Module) -> frozenset[str]:
    """Names of the functions, lambdas and classes at the top level of a module, and of methods."""
    return frozenset(name for statement in tree.body for name in _definitions(statement))


def apparent_names(code: str, tree: ast.Module | None) -> frozenset[str]:
    """As :func:`defined_names`, by a regular expression for a text that does not parse."""
    return frozenset(_DEFINITION.findall(code)) if tree is None else defined_names(tree)


def _definitions(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, _DEFINITIONS):
        yield statement.name
    if isinstance(statement, ast.ClassDef):
        yield from (node.name for node in statement.body if isinstance(node, _FUNCTIONS))
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def bound_at_top(tree: ast.Module) -> dict[str, bool]:
    """Names that the top level of a module binds, outside of functions and main guards.

    The value is whether the binding lasts: functions, classes, imports, and constants, which are
    lambdas, other functions' names and results, and names in capitals.
    """
    bound: dict[str, bool] = {}
    for statement in tree.body:
        if not is_main_guard(statement):
            for name in bound_by_statement(statement):
                bound[name] = bound.get(name, False) or name.isupper() or _lasts(statement, name)
    return bound


def bound_by_statement(statement: ast.stmt) -> frozenset[str]:
    """Names that a statement binds in its own scope."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, _DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp):
            pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _lasts(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.Assign):
        value = statement.value
        if isinstance(value, ast.Call):  # such as lru_cache(None)(solve)
            return isinstance(value.func, ast.Call) or ast.unparse(value.func).endswith("partial")
        return isinstance(value, ast.Lambda | ast.Name | ast.Attribute) and not reads_input(value)
    if isinstance(statement, ast.Try | ast.If):
        inner = ast.Module(
            [s for s in ast.iter_child_nodes(statement) if isinstance(s, ast.stmt)], []
        )
        return bound_at_top(inner).get(name, False)
    return isinstance(statement, (*_DEFINITIONS, ast.Import, ast.ImportFrom))


def own_imports(tree: ast.Module) -> frozenset[str]:
    """Names that ``from m import`` binds, where m is no module of the standard library."""
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not _is_standard(node)
        for alias in node.names
    )


def called_functions(tests: Sequence[str], setup: str = "") -> frozenset[str]:
    """Names of the functions that tests call and the answer must define.

    Builtins count only if the tests call nothing else.
    """
    trees = [tree for tree in map(parse, tests) if tree]
    before = parse(setup)
    given = frozenset().union(*(bound_at_top(t) for t in (*trees, before) if t))
    calls = [tree for tree in (*trees, before) if tree]
    called = {
        node.func.id
        for tree in calls
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } - given
    return frozenset(called - _BUILTINS) or frozenset(called)


def future_imports(code: str) -> tuple[list[str], str]:
    """Split ``from __future__`` imports, which must come first, from the rest of a module.

    The rest keeps its line numbers.
    """
    tree = parse(code) if "__future__" in code else None
    found = [
        node
        for node in (tree.body if tree else ())
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    lines = code.split("\n")
    for node in reversed(found):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last - 1].encode()[node.end_col_offset :].decode().lstrip(" \t;")
        lines[first:last] = [(before + after).rstrip("; "), *[""] * (last - first - 1)]
    return [ast.unparse(node) for node in found], "\n".join(lines)


def free_names(tree: ast.Module) -> frozenset[str]:
    """Names that a module uses but binds in no scope, except builtins."""
    used: set[str] = set()
    bound: set[str] = set()
    augmented: set[ast.Name] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return frozenset()  # the bound names are unknown
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
    # "from solution import solve" in a test refers to the answer in an earlier block.
    return (node.module or "").partition(".")[0] in sys.stdlib_module_names


def dedent_program(code: str) -> tuple[str, ast.Module | None]:
    """Remove common indentation if the result has definitions; a function body keeps it."""
    tree = parse(code)
    if tree is None and code.lstrip("\n")[:1] in (" ", "\t"):
        text = textwrap.dedent(code)
        dedented = parse(text)
        if dedented and not returns_at_top(dedented) and substance(dedented) >= Substance.ANSWER:
            return text, dedented
    return code, tree
