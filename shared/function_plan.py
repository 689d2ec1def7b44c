"""Plan of function tests: what they call, what they need, whether they can run apart.

Tests run in a process of their own and call the answer's functions with values, unless
:mod:`shared.function_needs` finds that they need one process for both.
"""

import ast
import builtins
import json
import re
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from shared.extraction import Extraction, future_imports
from shared.function_needs import callee, classes_of, last_name, needs_of, parents_of
from shared.harness.function_results import UnusableTestError, arguments_of, is_expected
from shared.harness.wire import FunctionTests
from shared.schemas import GroundTruth, HumanEvalTests, MbppTests, StdioTests
from shared.statuses import ExtractionReason

# What makes an argument, or converts a result, more often than it is a tested function.
_CONSTRUCTORS = ("list", "tuple", "set", "dict", "frozenset", "range", "str", "int", "float")
_BUILTINS = frozenset(dir(builtins)) | {"__builtins__", "__file__"}
_MODULES = sys.stdlib_module_names
_KNOWN_MODULES = _MODULES | {"numpy"}
_IMPORTERS = ("import_module", "__import__")
_IMPORT_PROGRAM = """\
import json
failed = {{}}
for statement in {statements}:
    try:
        exec(statement, {{}})
    except BaseException as error:
        failed[statement] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(failed))
"""
# Seconds that imports may take.
IMPORT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """Tests as they are sent.

    ``shared``: why they need the answer's process, if they do. ``fault``: why they cannot run,
    whatever the answer is. ``imports`` are the statements in them that import modules.
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
    """Return a Python program that tries imports and prints which fail."""
    return _IMPORT_PROGRAM.format(statements=ascii(list(statements)))


def failed_imports(stdout: bytes) -> Mapping[str, str] | None:
    """Return the reasons that the program printed, by statement; None without them."""
    with suppress(ValueError, AttributeError):  # the latter of JSON that is no object
        failed = json.loads(stdout.strip().rpartition(b"\n")[2]).items()
        return {str(statement): str(reason).rstrip(": ") for statement, reason in failed}
    return None


def before_function(prompt: str, name: str) -> str:
    """Return the part of a prompt before the function: imports, helper functions."""
    heads = list(re.finditer(rf"^(async )?def {re.escape(name)}\b", prompt, re.MULTILINE))
    return prompt[: heads[-1].start()] if heads else ""


def with_prompt(answer: Extraction, tests: HumanEvalTests) -> tuple[str, str]:
    """Return the answer as a whole program, and the part of the prompt that runs before it."""
    if answer.reason is ExtractionReason.BODY_ONLY:
        return f"{tests.prompt.rstrip()}\n{answer.code}", ""
    prelude = before_function(tests.prompt, tests.entry_point)
    futures, _ = future_imports(prelude)
    return "\n".join([*futures, answer.code]), prelude


def prelude_of(tests: GroundTruth) -> str:
    """Return the source text that runs before a whole answer: imports and helpers."""
    if isinstance(tests, HumanEvalTests):
        return before_function(tests.prompt, tests.entry_point)
    return tests.test_setup_code if isinstance(tests, MbppTests) else ""


@lru_cache(maxsize=2048)
def _humaneval_plan(prompt: str, entry_point: str, test: str) -> FunctionPlan:
    prelude = before_function(prompt, entry_point)
    texts = [f"{test}\ncheck({entry_point})\n"]
    entry_point = entry_point.partition("(")[0]  # of ``Solution().name``
    bound = _names(prelude).bound
    shared = None
    if re.search(rf"^class {re.escape(entry_point)}\b", prompt, re.MULTILINE):
        shared = f"the tests use a class of the answer: {entry_point}"
    plan = _plan(prelude, texts, [entry_point], bound - {entry_point}, shared)
    others = ", ".join(name for name in plan.tests.names if name != entry_point)
    fault = plan.fault
    if others and not fault and not _may_define(ast.walk(ast.parse(texts[0])), plan.imports):
        fault = f"undefined names: {others}"
    if "check" not in _names(texts[0]).bound:
        fault = "the test defines no function check"
    tests = plan.tests
    if "random" in test:  # inputs may be; a fixed seed makes the verdict deterministic
        tests = replace(tests, tests=[f"import random; random.seed(0)\n{texts[0]}"])
    return replace(plan, tests=tests, fault=fault)


@lru_cache(maxsize=2048)
def _mbpp_plan(setup: str, texts: tuple[str, ...]) -> FunctionPlan:
    names = _names(setup)
    missing = sorted(names.free - _BUILTINS - _KNOWN_MODULES)
    shared = f"the setup uses names of the answer: {', '.join(missing)}" if missing else None
    return _plan(setup, texts, [], names.bound, shared)


def _plan(
    setup: str,
    texts: Sequence[str],
    names: list[str],
    bound: frozenset[str],
    shared: str | None,
) -> FunctionPlan:
    used = [_names(text) for text in texts]
    bound = bound.union(*(text.bound for text in used)) - set(names)
    free = sorted(frozenset[str]().union(*(text.free for text in used)) - bound)
    try:
        trees = [ast.parse(text) for text in (setup, *texts)]
    except (SyntaxError, ValueError) as error:
        cause = f"line {getattr(error, 'lineno', '?')}: {getattr(error, 'msg', error)}"
        return FunctionPlan(FunctionTests(setup, setup, list(texts), names, []), shared, cause)
    nodes = parents_of(trees[1:])
    called = {callee(node) for node in nodes}
    modules = [name for name in free if name in _KNOWN_MODULES - called and name not in names]
    names += [name for name in free if name not in (*names, *_BUILTINS, *modules)]
    names = names or _named_as_builtins(trees)
    parents = parents_of(trees[:1]) | nodes
    imports = tuple(dict.fromkeys(_imports(parents)))
    hidden = _may_define(parents, imports)
    undefined = [] if hidden else _undefined(nodes, frozenset(names))
    fault = f"undefined names: {', '.join(undefined)}" if undefined else None
    if not fault and not shared:
        shared = needs_of(trees[0], parents, frozenset(names))
    imports += tuple(f"import {module}" for module in modules)
    tests = FunctionTests(setup, setup, list(texts), names, modules, classes_of(trees[0]))
    return FunctionPlan(tests, shared, fault, imports)


# Names


class _Names(NamedTuple):
    """Names that a text binds at its top level, and those that it uses without binding them."""

    bound: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


@lru_cache(maxsize=8)  # a text is looked at several times, and the next problem has others
def _names(text: str) -> _Names:
    try:
        top = symtable.symtable(text, "<tests>", "exec")
    except (SyntaxError, ValueError):
        return _Names()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = set[str]()
    tables = [top]
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            local = table is not top or symbol.is_free()
            if symbol.is_referenced() and (symbol.is_global() or not local):
                used.add(symbol.get_name())
    return _Names(frozenset(bound), frozenset(used - bound))


def _named_as_builtins(trees: Sequence[ast.Module]) -> list[str]:
    """Return the tested function if it has the name of a built-in one: the innermost call's."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                left = node.test.left if isinstance(node.test, ast.Compare) else node.test
                called = [n for call in ast.walk(left) if (n := callee(call)) in _BUILTINS and n]
                if called:
                    return ([name for name in called if name not in _CONSTRUCTORS] or called)[-1:]
    return []


def _imports(parents: Mapping[ast.AST, ast.AST]) -> Iterator[str]:
    """Yield the imports anywhere in trees, except those whose failure is handled."""
    handled = set[ast.AST]()
    for node, parent in parents.items():
        if parent in handled or (isinstance(node, ast.Try) and node.handlers):
            handled.add(node)
        elif isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and last_name(node.func) in _IMPORTERS:
            name = node.args[0] if len(node.args) == 1 else None
            text = name.value if isinstance(name, ast.Constant) else None
            if isinstance(text, str) and text.replace(".", "").isidentifier():
                yield f"import {text}"


def _may_define(nodes: Iterable[ast.AST], imports: Iterable[str]) -> bool:
    """Whether tests may define names that nobody sees."""
    called = {callee(node) for node in nodes}
    stars = any(text.endswith(" *") for text in imports)
    return stars or not called.isdisjoint(("exec", "globals", "vars", "setattr"))


def _undefined(parents: Mapping[ast.AST, ast.AST], names: frozenset[str]) -> list[str]:
    """Return those of the answer's names that the tests use as data alone, or write as constants.

    An answer is asked for functions and classes.
    """
    functions, called, lists = set[str](), set[str](), set[ast.AST]()
    for node, parent in parents.items():
        called.add(callee(node) or "")
        if callee(parent) in names and isinstance(node, ast.List | ast.Tuple | ast.Dict):
            lists.add(node)
        elif isinstance(node, ast.Name) and not (isinstance(parent, _DATA_USES) or parent in lists):
            functions.add(node.id)
    constants = {name for name in names if name.isupper()}
    return sorted(names - called - (functions - constants))


_DATA_USES = (
    *(ast.Compare, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.For, ast.comprehension),
    *(ast.Starred, ast.FormattedValue, ast.withitem),
)
