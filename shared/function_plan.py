"""Plan of function tests: what they call, what they need, whether they can run apart.

Tests run in a process of their own and call the answer's functions with values. A problem whose
tests pass functions or instances of the answer's classes needs one process for both. That is
decided from the problem's texts alone, so an answer cannot bring it about.
"""

import ast
import builtins
import json
import re
import symtable
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from shared.harness.function_calls import UnusableTestError, arguments_of, is_expected
from shared.harness.wire import FunctionTests
from shared.schemas import GroundTruth, HumanEvalTests, MbppTests, StdioTests

_BUILTINS = frozenset(dir(builtins))
_MODULES = sys.stdlib_module_names
_KNOWN_MODULES = _MODULES | {"numpy"}
_IMPORT_PROGRAM = """\
import json
found = {{}}
for statement in {statements}:
    try:
        exec(statement, {{}})
    except BaseException as error:
        found[statement] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(found))
"""
# Seconds that imports may take.
IMPORT_SECONDS = 60.0
_CLASS_NAME = re.compile(r"_*[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """Tests as they are sent.

    Attributes:
        shared: Why they need the answer's process, if they do.
        fault: Why they cannot run, whatever the answer is.
        imports: Statements in them that import modules.
    """

    tests: FunctionTests
    shared: str | None = None
    fault: str | None = None
    imports: tuple[str, ...] = ()


def plan_of(tests: HumanEvalTests | MbppTests) -> FunctionPlan:
    """Return the plan of a problem's tests."""
    if isinstance(tests, HumanEvalTests):
        return _humaneval_plan(tests.prompt, tests.entry_point, tests.test)
    return _mbpp_plan(tests.test_setup_code, tuple(tests.test_list))


def fault_of(tests: GroundTruth) -> str | None:
    """Return why tests cannot run, whatever the answer is, as far as their text tells."""
    if isinstance(tests, HumanEvalTests | MbppTests):
        return plan_of(tests).fault
    if isinstance(tests, StdioTests) and tests.fn_name:
        for place, (text, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True)):
            try:
                arguments_of(text, tests.calls)
                is_expected(None, expected, tests.calls)
            except UnusableTestError as error:
                return f"call {place}: {error}"
    return None


def import_program(statements: Iterable[str]) -> str:
    """Return a Python program that tries imports and prints which ones fail."""
    return _IMPORT_PROGRAM.format(statements=ascii(list(statements)))


def failed_imports(stdout: bytes) -> Mapping[str, str] | None:
    """Return the reasons that the program printed, by statement; None if it printed none."""
    try:
        found = json.loads(stdout.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {str(statement): str(reason) for statement, reason in found.items()}


def before_function(prompt: str, name: str) -> str:
    """Return the part of a prompt before the function: imports, helper functions."""
    heads = list(re.finditer(rf"^(async )?def {re.escape(name)}\b", prompt, re.MULTILINE))
    return prompt[: heads[-1].start()] if heads else ""


def prelude_of(tests: GroundTruth) -> str:
    """Return the source text that runs before a whole answer: imports and helpers."""
    if isinstance(tests, HumanEvalTests):
        return before_function(tests.prompt, tests.entry_point)
    return tests.test_setup_code if isinstance(tests, MbppTests) else ""


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
    plan = _plan(prelude, prelude, texts, [entry_point], known - {entry_point}, shared)
    others = ", ".join(name for name in plan.tests.names if name != entry_point)
    fault = plan.fault or (f"undefined names: {others}" if others else None)
    if "check" not in _names(test).bound:
        fault = "the test defines no function check"
    return replace(plan, fault=fault)


@lru_cache(maxsize=2048)
def _mbpp_plan(setup: str, texts: tuple[str, ...]) -> FunctionPlan:
    found = _names(setup)
    missing = sorted(found.free - _BUILTINS - _KNOWN_MODULES)
    shared = f"the setup uses names of the answer: {', '.join(missing)}" if missing else None
    return _plan(setup, setup, texts, [], found.bound, shared)


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
    modules = [name for name in free if name in _KNOWN_MODULES and name not in names]
    names += [name for name in free if name not in (*names, *_BUILTINS, *modules)]
    try:
        trees = [ast.parse(text) for text in (setup, *texts)]
    except (SyntaxError, ValueError) as error:
        told = f"line {getattr(error, 'lineno', '?')}: {getattr(error, 'msg', error)}"
        tests = FunctionTests(prelude, setup, list(texts), names, modules)
        return FunctionPlan(tests, shared, told)
    names = names or _named_as_builtins(trees)
    shared = shared or next(_reasons(trees[0], trees[1:], frozenset(names)), None)
    undefined = _undefined(trees[1:], frozenset(names))
    fault = f"undefined names: {', '.join(undefined)}" if undefined else None
    imports = tuple(dict.fromkeys(text for tree in trees for text in _imports(tree)))
    imports += tuple(f"import {module}" for module in modules)
    tests = FunctionTests(prelude, setup, list(texts), names, modules, _classes(trees[0]))
    return FunctionPlan(tests, shared, fault, imports)


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


def _imports(node: ast.AST) -> Iterator[str]:
    """Yield the imports anywhere in a tree, except those whose failure is handled."""
    if isinstance(node, ast.Import):
        yield from (f"import {alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield ast.unparse(node)
    elif not (isinstance(node, ast.Try) and node.handlers):
        for inner in ast.iter_child_nodes(node):
            yield from _imports(inner)


def _undefined(trees: Sequence[ast.Module], names: frozenset[str]) -> list[str]:
    """Return those of the answer's names that the tests only compare or calculate with.

    An answer is asked for functions and classes.
    """
    found, operands = Counter[str](), Counter[str]()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.Compare | ast.BinOp | ast.UnaryOp):
            parts = ast.iter_child_nodes(node)
            operands.update(part.id for part in parts if isinstance(part, ast.Name))
    return sorted(name for name in names if found[name] and found[name] == operands[name])


# What cannot cross


def _functions(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the functions and classes that the tests define."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = (node for tree in trees for node in ast.walk(tree))
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


def _classes(setup: ast.Module) -> list[str]:
    """Return the classes that a setup defines, by a statement or by a call such as namedtuple."""
    found = [node.name for node in setup.body if isinstance(node, ast.ClassDef)]
    for node in setup.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [one.id for one in node.targets if isinstance(one, ast.Name)]
            found += [name for name in names if _CLASS_NAME.fullmatch(name)]
    return found


def _reasons(
    setup: ast.Module, trees: Sequence[ast.Module], names: frozenset[str]
) -> Iterator[str]:
    """Yield why tests need the answer's process."""
    classes = frozenset(name for name in names if _CLASS_NAME.fullmatch(name))
    functions = _functions([setup, *trees])
    names |= {"candidate"}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assign) and _is_function(node.value, functions):
            functions |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    own = functions - frozenset(_classes(setup))
    own = frozenset(name for name in own if _CLASS_NAME.fullmatch(name))
    for node in (node for tree in trees for node in ast.walk(tree)):
        yield from _passed(node, names, functions, classes, own)
        yield from _looked_at(node, names)
        if (name := _base(node)) in classes:
            yield f"the tests use a class of the answer: {name}"


def _is_function(node: ast.AST, functions: frozenset[str]) -> bool:
    """Whether a value is a function, or an iterator without an end."""
    if isinstance(node, ast.Lambda):
        return True
    if isinstance(node, ast.Name):
        return node.id in functions
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}" in _UNCROSSABLE
    return isinstance(called, ast.Name) and called.id in ("partial", "cycle", "repeat")


_UNCROSSABLE = {
    *("functools.partial", "itertools.count", "itertools.cycle", "itertools.repeat"),
    *("threading.Lock", "io.StringIO", "io.BytesIO", "re.compile", "random.Random"),
}
# Attributes of values that cross.
_ATTRIBUTES = frozenset(
    name
    for kind in (str, bytes, int, float, complex, list, tuple, dict, set, range, slice, Counter)
    for name in (*dir(kind), *dir(deque), *dir(Fraction), *dir(Decimal), *dir(datetime))
    if not name.startswith("__")
) | {"shape", "dtype", "tolist", "all", "any", "sum", "size", "ndim", "T", "args", "with_traceback"}
_STREAMS = ("redirect_stdout", "redirect_stderr", "capsys", "StringIO")


def _looked_at(node: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """Yield what tests look at besides values."""
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"the tests use an attribute of a function: {node.value.id}.{node.attr}"
        elif _callee(node.value) in names and node.attr not in _ATTRIBUTES:
            yield f"the tests use an attribute of a result: {node.attr}"
        elif node.attr in ("send", "throw"):
            yield f"the tests use the method {node.attr} of a generator"
        elif node.attr in (*_STREAMS, "stdout", "stderr"):
            yield "the tests look at what is printed"
    elif isinstance(node, ast.Name) and node.id in _STREAMS:
        yield "the tests look at what is printed"
    elif isinstance(node, ast.withitem) and _callee(node.context_expr) in names:
        yield "the tests use a result as a context manager"
    elif isinstance(node, ast.Call) and _looks(node.func):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Name) and first.id in names:
            yield f"the tests look at a function by {ast.unparse(node.func)}"


def _looks(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return isinstance(called.value, ast.Name) and called.value.id == "inspect"
    return isinstance(called, ast.Name) and called.id in _LOOKS


_LOOKS = ("getattr", "hasattr", "setattr", "vars", "dir", "help", "type", "id")


def _passed(
    node: ast.AST,
    names: frozenset[str],
    functions: frozenset[str],
    classes: frozenset[str],
    own: frozenset[str],
) -> Iterator[str]:
    """Yield what a call of the answer's functions cannot be given."""
    if not isinstance(node, ast.Call) or _callee(node) not in names:
        return
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        called = {
            id(call.func if isinstance(call, ast.Call) else call.value)
            for call in ast.walk(argument)
            if isinstance(call, ast.Call | ast.Attribute)
        }
        for part in ast.walk(argument):
            name = part.id if isinstance(part, ast.Name) else None
            if _is_function(part, frozenset()) and not _is_key(argument, part):
                yield "the tests pass a function, or an iterator without an end"
            elif name in functions and id(part) not in called and not _is_key(argument, part):
                yield f"the tests pass a function or class: {name}"
            elif name in classes:
                yield f"the tests pass an instance of a class of the answer: {name}"
            elif name in own:
                yield f"the tests pass an instance of a class of theirs: {name}"


def _is_key(argument: ast.AST, function: ast.AST) -> bool:
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
