"""Facts about a piece of Python code that decide whether it is the answer, and what it lacks."""

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from shared.extraction.python_source import (
    Substance,
    apparent_names,
    bound_at_top,
    dedent_program,
    free_names,
    is_main_guard,
    is_stub,
    own_imports,
    parse,
    reads_input,
    returns_at_top,
    substance,
    writes_output,
)
from shared.extraction.repairs import is_session, repaired

_DEFINITION_OR_INPUT = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w+.*:)|\binput[ \t]*\(|\bstdin\b",
    re.MULTILINE,
)
_INPUT = re.compile(r"\binput[ \t]*\(|\bstdin\b")
_ELIDED = re.compile(
    r"(?:#|//)[^\n\w]{0,4}(?:\.\.\.|…)[ \t]*[A-Za-z(]"
    r"|(?:#|//)[^\n]{0,40}\b(?:(?:rest|remainder) of (?:the |your )?"
    r"(?:code|function|implementation|program|solution|class)"
    r"|same (?:\w+ )?as (?:above|before)|existing (?:code|implementation)"
    r"|(?:code|implementation|function) (?:remains|stays|is) (?:the )?(?:same|unchanged))",
    re.IGNORECASE,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_LOOPS = (ast.For, ast.While, ast.With, ast.Try)


def is_elided(code: str) -> bool:
    """Whether a comment stands for code that is left out."""
    return _ELIDED.search(code) is not None


@dataclass(frozen=True)
class Snippet:
    """A piece of Python source; ``tree`` is None if it does not parse."""

    code: str
    tree: ast.Module | None
    session: bool = False

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a block: dedented if it has definitions, and repaired if that makes it a program."""
        code, tree = dedent_program(text)
        if tree is None and (changed := repaired(code, _is_program)):
            return cls(changed, parse(changed), session=is_session(code))
        return cls(code, tree)

    def substance(self, names: Set[str]) -> Substance:
        return substance(self.tree, names)

    @cached_property
    def definitions(self) -> frozenset[str]:
        """Names of functions and classes, methods included; apparent ones of a broken text."""
        return apparent_names(self.code, self.tree)

    @cached_property
    def names(self) -> frozenset[str]:
        return self.definitions | self.functions

    @cached_property
    def callables(self) -> frozenset[str]:
        """Names at the top level that tests can call, not those imported from other files."""
        return self.functions - self.imported if self.tree else self.definitions

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names that the top level binds for good: functions, classes, imports, constants."""
        bound = bound_at_top(self.tree) if self.tree else {}
        return frozenset(name for name, lasting in bound.items() if lasting)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Other names that the top level binds, unless all of it is example data."""
        if self.tree is None or not (self.reads or any(map(_is_work, self.tree.body))):
            return frozenset()
        return frozenset(bound_at_top(self.tree)) - self.functions

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names that are used but bound nowhere; modules besides the standard ones bind none."""
        return free_names(self.tree) if self.tree else frozenset()

    @cached_property
    def imported(self) -> frozenset[str]:
        """Names imported from modules besides the standard ones, such as other files."""
        return own_imports(self.tree) if self.tree else frozenset()

    @cached_property
    def reads(self) -> bool:
        """Whether it reads standard input."""
        return self.tree is not None and reads_input(self.tree)

    @cached_property
    def writes(self) -> bool:
        return self.tree is not None and writes_output(self.tree)

    @cached_property
    def acts(self) -> bool:
        """Whether the top level calls anything."""
        return self.tree is not None and any(
            not isinstance(statement, (*_DEFINITIONS, ast.Import, ast.ImportFrom))
            and any(isinstance(node, ast.Call) for node in ast.walk(statement))
            for statement in self.tree.body
        )

    @property
    def is_program(self) -> bool:
        """Whether it reads, computes and prints: a whole answer on standard input."""
        return self.reads and self.writes and self.acts

    @cached_property
    def is_test(self) -> bool:
        return any(name.lower().startswith("test") for name in self.names)

    @cached_property
    def is_elided(self) -> bool:
        return is_elided(self.code)

    @cached_property
    def is_attempt(self) -> bool:
        """Whether a text that does not parse appears to be meant as a program."""
        if self.code.lstrip().startswith(">>>"):
            return False
        if self.code.lstrip("\n")[:1] in (" ", "\t") and parse(f"if 1:\n{self.code}"):
            return False  # a fragment of a function
        return _DEFINITION_OR_INPUT.search(self.code) is not None

    @property
    def is_attempt_with_input(self) -> bool:
        return self.is_attempt and _INPUT.search(self.code) is not None

    def is_stub(self, names: Set[str] = frozenset()) -> bool:
        """Whether all of these functions (without names: all functions) have no content."""
        functions = [
            node
            for node in ast.walk(self.tree or ast.Module([], []))
            if isinstance(node, _FUNCTIONS) and (not names or node.name in names)
        ]
        if not functions or (not names and self.acts):
            return False
        return all(is_stub(function, self.code) for function in functions)

    def parts(self) -> Iterator[ast.stmt]:
        """The top-level statements besides docstrings, examples, tests and main guards."""
        for statement in self.tree.body if self.tree else ():
            if isinstance(statement, ast.Assert) or is_main_guard(statement):
                continue
            if not isinstance(statement, ast.Expr) or _is_setting(statement.value):
                yield statement


def _is_program(text: str) -> bool:
    tree = parse(text)
    return tree is not None and not returns_at_top(tree) and substance(tree) >= Substance.STATEMENTS


def _is_work(statement: ast.stmt) -> bool:
    """Whether a statement is more than example data or a call."""
    if isinstance(statement, ast.Assign):
        value = statement.value
        return isinstance(value, ast.List | ast.Dict | ast.Set) and not any(
            isinstance(node, ast.Constant) for node in ast.walk(value)
        )
    return isinstance(statement, (*_DEFINITIONS, *_LOOPS))


def _is_setting(value: ast.expr) -> bool:
    """Whether an expression is a call such as ``sys.setrecursionlimit(10**6)``."""
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    return isinstance(function, ast.Attribute) and function.attr not in ("write", "writelines")
