"""Mutants of a Python program: copies with one small mistake, as answers of models have them."""

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Calls that an answer may forget: f(x) becomes x.
_FORGOTTEN = {"abs", "sorted", "set", "round", "int", "str", "reversed", "list"}
# Mutants that are tried per program at most; a long program has thousands.
_MOST_TRIED = 2000

NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Exceptions of texts that cannot be parsed, also because they nest too deeply."""

_Change = tuple[str, Sequence[ast.AST]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one mistake; ``change`` is the kind of the mistake."""

    code: str
    change: str


def normalized(code: str) -> str:
    """The program without comments, docstrings and layout.

    Raises:
        SyntaxError: It cannot be parsed; or another one of ``NO_PYTHON``.
    """
    return ast.unparse(_parsed(code))


def mutants(code: str, *, most: int, seed: str) -> list[Mutant]:
    """Make up to ``most`` different mutants, the kinds of mistakes in turn.

    The result depends on the arguments alone. It is empty if the program cannot be parsed.
    """
    try:
        tree = _parsed(code)
        original = ast.unparse(tree)
        kinds: dict[str, list[str]] = {}
        seen = {original}
        for change, text in _texts(tree):
            if text not in seen:
                seen.add(text)
                kinds.setdefault(change, []).append(text)
            if len(seen) > _MOST_TRIED:
                break
    except NO_PYTHON:
        return []
    chance = random.Random(seed)
    for texts in kinds.values():
        chance.shuffle(texts)
    chosen: list[Mutant] = []
    while kinds and len(chosen) < most:
        for change in sorted(kinds):
            chosen.append(Mutant(kinds[change].pop(), change))
        kinds = {change: texts for change, texts in kinds.items() if texts}
    return chosen[:most]


def _parsed(code: str) -> ast.Module:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            body = [child for child in node.body if not _is_text(child)]
            node.body = body or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the kind of each mistake and the program with it; the tree is restored each time."""
    for parent, name in list(_fields(tree)):
        value = getattr(parent, name)
        siblings = value if isinstance(value, list) else [value]
        for place, node in enumerate(siblings):
            for change, others in _mistakes(node, parent):
                changed = [*siblings[:place], *others, *siblings[place + 1 :]]
                setattr(parent, name, changed if isinstance(value, list) else changed[0])
                yield change, ast.unparse(ast.fix_missing_locations(tree))
                setattr(parent, name, value)


def _fields(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the fields with other nodes, from the top, where a mistake can be."""
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        nodes = [part for part in parts if isinstance(part, ast.AST)]
        if not nodes or name in ("annotation", "decorator_list", "format_spec"):
            continue
        if isinstance(node, ast.If) and name == "test" and "__name__" in ast.unparse(nodes[0]):
            continue
        if not isinstance(node, ast.JoinedStr):
            yield node, name
        for child in nodes:
            yield from _fields(child)


def _mistakes(node: ast.AST, parent: ast.AST) -> Iterator[_Change]:
    """Yield what may stand in place of a node, with the kind of the mistake."""
    if isinstance(node, ast.expr):
        yield from (("bound", [bound]) for bound in _bounds(node, parent))
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield "comparison", [ast.Compare(node.left, ops, node.comparators)]
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", [ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)]
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "condition", [ast.BoolOp(other_op, node.values)]
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            yield "condition", [rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)]
    elif isinstance(node, ast.UnaryOp):
        yield "condition" if isinstance(node.op, ast.Not) else "arithmetic", [node.operand]
    elif isinstance(node, ast.Constant):
        kind = "initial value" if isinstance(parent, ast.Assign) else "constant"
        yield from ((kind, [ast.Constant(value)]) for value in _constants(node.value))
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Slice):
        for part in ("lower", "upper", "step"):
            if getattr(node, part):
                left = {name: getattr(node, name) for name in ("lower", "upper", "step")}
                yield "bound", [ast.Slice(**{**left, part: None})]
    elif isinstance(node, ast.IfExp):
        yield from (("branch", [branch]) for branch in (node.body, node.orelse))
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)


def _bounds(node: ast.expr, parent: ast.AST) -> Iterator[ast.expr]:
    """Yield an index, a bound of a slice or an argument of ``range``, off by one."""
    in_range = isinstance(parent, ast.Call) and _name(parent.func) == "range"
    in_range = in_range and node in getattr(parent, "args", [])
    index = isinstance(parent, ast.Subscript) and node is parent.slice
    number = index and not isinstance(node, ast.Slice | ast.Tuple | ast.Constant)
    if in_range or (isinstance(parent, ast.Slice) and node is not parent.step) or number:
        for operator in (ast.Add(), ast.Sub()):
            yield ast.BinOp(node, operator, ast.Constant(1))


def _constants(value: object) -> Iterator[str | float]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from dict.fromkeys((value + 1, value - 1, 0))
    elif isinstance(value, float):
        yield from (value + 1, 0.0)
    elif isinstance(value, str) and value:
        yield ""


def _of_call(node: ast.Call) -> Iterator[_Change]:
    name = _name(node.func)
    if name in _SWAPPED:
        other = ast.Name(_SWAPPED[name], ast.Load())
        yield "arithmetic", [ast.Call(other, node.args, node.keywords)]
    if name in _FORGOTTEN and node.args:
        yield "dropped call", [node.args[0]]
    if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        yield "dropped call", [node.func.value]
    for place in range(len(node.keywords)):
        left = node.keywords[:place] + node.keywords[place + 1 :]
        yield "dropped call", [ast.Call(node.func, node.args, left)]


def _of_statement(node: ast.stmt) -> Iterator[_Change]:
    if isinstance(node, ast.If):
        yield "branch", [*node.body]
        yield "branch", [*node.orelse] or [ast.Pass()]
    elif isinstance(node, ast.AugAssign):
        yield "dropped statement", [ast.Pass()]
        if type(node.op) in _ARITHMETIC:
            operator = _ARITHMETIC[type(node.op)]()
            yield "arithmetic", [ast.AugAssign(node.target, operator, node.value)]
    elif isinstance(node, ast.Continue | ast.Break) or _is_effect(node):
        yield "dropped statement", [ast.Pass()]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.UnaryOp):
        yield "initial value", [ast.Assign(node.targets, ast.Constant(0))]


def _is_effect(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else ""
