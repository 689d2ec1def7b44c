"""Plan of function tests: what the tests call, and whether they can run apart from the answer.

Tests run in a process of their own and call the answer's functions with values. A problem whose
tests pass functions or instances of the answer's classes needs one process for both. That is
decided from the problem's texts alone, so an answer cannot bring it about.
"""

import ast
import builtins
import re
import symtable
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shared.harness.wire import FunctionTests
from shared.schemas import HumanEvalTests, MbppTests

_BUILTINS = frozenset(dir(builtins))
_MODULES = {name: name for name in sys.stdlib_module_names} | {"numpy": "numpy"}
_CLASS_NAME = re.compile(r"_*[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """Tests as they are sent; ``shared`` is why they need the answer's process, if they do."""

    tests: FunctionTests
    shared: str | None = None


def plan_of(tests: HumanEvalTests | MbppTests) -> FunctionPlan:
    """Return the plan of a problem's tests."""
    if isinstance(tests, HumanEvalTests):
        return _humaneval_plan(tests.prompt, tests.entry_point, tests.test)
    return _mbpp_plan(tests.test_setup_code, tuple(tests.test_list))


def before_function(prompt: str, name: str) -> str:
    """Return the part of a prompt before the function: imports, helper functions."""
    heads = list(re.finditer(rf"^(async )?def {re.escape(name)}\b", prompt, re.MULTILINE))
    return prompt[: heads[-1].start()] if heads else ""


@lru_cache(maxsize=2048)
def _humaneval_plan(prompt: str, entry_point: str, test: str) -> FunctionPlan:
    prelude = before_function(prompt, entry_point)
    # Some tests draw random inputs; a fixed seed makes the verdict deterministic.
    seed = "import random; random.seed(0)\n" if "random" in test else ""
    texts = [f"{seed}{test}\ncheck({entry_point})\n"]
    known = _names(prelude).bound
    shared = None
    if re.search(rf"^class {re.escape(entry_point)}\b", prompt, re.MULTILINE):
        shared = f"the tests use a class of the answer: {entry_point}"
    return _plan(prelude, prelude, texts, [entry_point], known - {entry_point}, shared)


@lru_cache(maxsize=2048)
def _mbpp_plan(setup: str, texts: tuple[str, ...]) -> FunctionPlan:
    found = _names(setup)
    missing = sorted(found.free - _BUILTINS - _MODULES.keys())
    shared = f"the setup uses names of the answer: {', '.join(missing)}" if missing else None
    return _plan(_imports(setup), setup, texts, [], found.bound, shared)


def _plan(
    prelude: str,
    setup: str,
    texts: Sequence[str],
    names: list[str],
    known: frozenset[str],
    shared: str | None,
) -> FunctionPlan:
    found = [_names(text) for text in texts]
    known = known.union(*(names.bound for names in found)) - set(names)
    free = sorted(frozenset[str]().union(*(names.free for names in found)) - known)
    modules = [name for name in free if name in _MODULES and name not in names]
    names += [name for name in free if name not in (*names, *_BUILTINS, *modules)]
    trees = [tree for text in texts if (tree := _parse(text)) is not None]
    names = names or _named_as_builtins(trees)
    shared = shared or next(_reasons(trees, frozenset(names), _functions([setup, *texts])), None)
    return FunctionPlan(FunctionTests(prelude, setup, list(texts), names, modules), shared)


# Names


@dataclass(frozen=True, slots=True)
class _Names:
    """Names that a text binds at its top level, and those that it uses without binding them."""

    bound: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def _names(text: str) -> _Names:
    try:
        top = symtable.symtable(text, "<tests>", "exec")
    except (SyntaxError, ValueError):
        return _Names()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    return _Names(frozenset(bound), frozenset(_globals(top) - bound))


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Return the global names that a scope or one within it refers to."""
    top = table.get_type() == "module"
    symbols = [s for s in table.get_symbols() if s.is_referenced()]
    found = {s.get_name() for s in symbols if s.is_global() or (top and not s.is_free())}
    return found.union(*(_globals(inner) for inner in table.get_children()))


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _named_as_builtins(trees: Sequence[ast.Module]) -> list[str]:
    """Return the tested function if it has the name of a built-in one: the innermost call's."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                left = node.test.left if isinstance(node.test, ast.Compare) else node.test
                called = [name for call in ast.walk(left) if (name := _callee(call)) is not None]
                if called:
                    return called[-1:]
    return []


def _callee(node: ast.AST) -> str | None:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id if called else None  # type: ignore[attr-defined]


def _imports(setup: str) -> str:
    """Return the imports of a setup: the rest of it is no business of the answer."""
    tree = _parse(setup)
    found = [] if tree is None else tree.body
    return "\n".join(ast.unparse(n) for n in found if isinstance(n, ast.Import | ast.ImportFrom))


# What cannot cross


def _functions(texts: Iterable[str]) -> frozenset[str]:
    """Return the functions and classes that the tests define."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = (node for text in texts if (tree := _parse(text)) for node in ast.walk(tree))
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


def _reasons(
    trees: Sequence[ast.Module], names: frozenset[str], functions: frozenset[str]
) -> Iterator[str]:
    classes = frozenset(name for name in names if _CLASS_NAME.fullmatch(name))
    for tree in trees:
        for node in ast.walk(tree):
            yield from _passed(node, names | {"candidate"}, functions, classes)
            if (name := _base(node)) in classes:
                yield f"the tests use a class of the answer: {name}"


def _passed(
    node: ast.AST, names: frozenset[str], functions: frozenset[str], classes: frozenset[str]
) -> Iterator[str]:
    """Yield what a call of the answer's functions cannot be given."""
    if not isinstance(node, ast.Call) or _callee(node) not in names:
        return
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        called = {id(call.func) for call in ast.walk(argument) if isinstance(call, ast.Call)}
        for part in ast.walk(argument):
            name = part.id if isinstance(part, ast.Name) else None
            if isinstance(part, ast.Lambda) and not _is_key(argument, part):
                yield "the tests pass a function"
            elif name in functions and id(part) not in called:
                yield f"the tests pass a function or class: {name}"
            elif name in classes:
                yield f"the tests pass an instance of a class of the answer: {name}"


def _is_key(argument: ast.AST, function: ast.Lambda) -> bool:
    """Whether a function is an argument of another call, like the key of ``sorted``."""
    calls = (node for node in ast.walk(argument) if isinstance(node, ast.Call))
    return any(
        function in (*call.args, *(keyword.value for keyword in call.keywords)) for call in calls
    )


def _base(node: ast.AST) -> str | None:
    """Return the name whose call's result has an attribute used, or is kept in a variable."""
    if isinstance(node, ast.Attribute | ast.Assign):
        inner = node.value
        if isinstance(inner, ast.Name) and isinstance(node, ast.Attribute):
            return inner.id
        return _callee(inner)
    return None
