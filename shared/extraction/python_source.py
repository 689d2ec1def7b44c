"""Static analysis of untrusted Python source: syntax, defined names, code without fences.

Nothing is run. Finds programs, function bodies and code in prose in completions without fences.
"""

import ast
import builtins
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from enum import IntEnum

# Parsing happens in the judge's own process, so its cost is limited; real answers are much shorter.
MAX_PARSED_CHARACTERS = 200_000

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_BUILTINS = frozenset(dir(builtins)) | {"__file__"}
_DEFINITION = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)", re.MULTILINE)
_CONTINUATION = re.compile(r"\s|\Z|[)\]}]|(else|elif|except|finally)\b")
_TRIPLE_QUOTE = re.compile(r"\"\"\"|'''")


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


# Text without fences


def bare_program(text: str) -> str | None:
    """The text without common indentation, if all of it is a program."""
    code, tree = dedent_program(text)
    if tree is None or returns_at_top(tree):
        return None
    return code if substance(tree) >= Substance.STATEMENTS else None


def dedent_program(code: str) -> tuple[str, ast.Module | None]:
    """Remove common indentation if the result has definitions; a function body keeps it."""
    tree = parse(code)
    if tree is None and code.lstrip("\n")[:1] in (" ", "\t"):
        text = textwrap.dedent(code)
        dedented = parse(text)
        if dedented and not returns_at_top(dedented) and substance(dedented) >= Substance.ANSWER:
            return text, dedented
    return code, tree


def function_body(text: str) -> str | None:
    """The text as the body of a function whose head is in the prompt, truncated at its end."""
    if text[:1] in (" ", "\t"):
        lines = text.split("\n")
        outside = (i for i, line in enumerate(lines) if line[:1] not in ("", " ", "\t", "#"))
        candidates = [text, "\n".join(lines[: next(outside, len(lines))])]
    else:  # a server that strips completions removed the first line's indentation
        candidates = ["    " + text, textwrap.indent(text, "    ")]
    return next((c.rstrip() + "\n" for c in candidates if _is_body(c)), None)


def _is_body(text: str) -> bool:
    tree = parse("def _():\n" + text)
    function = tree.body[0] if tree else None
    return isinstance(function, ast.FunctionDef) and returns_at_top(function)


def python_lines(text: str, entry_point: str | None = None) -> str | None:
    """Find the run of lines within prose with the most substance; the longest of equals."""
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
