"""Static analysis of untrusted Python source: syntax, defined and missing names. Nothing is run."""

import ast
import builtins
import html
import re
import symtable
import sys
import textwrap
import warnings
from collections.abc import Sequence, Set
from functools import cached_property

from shared.extraction.languages import is_closed, language_of

PYTHON = language_of("python")
# Parsing happens in the judge's own process, so its cost is limited; real answers are much shorter.
MAX_PARSED_CHARACTERS = 200_000

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
_SCOPES = (*DEFINITIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}
_NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)

_DEFINITION = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)", re.MULTILINE)
_INPUT = re.compile(r"\binput[ \t]*\(|\bstdin\b|\bopen[ \t]*\([ \t]*(?:0|\"\")|\bos\.read\(")
_OUTPUT = re.compile(r"\bprint\b|\bstdout\b|\.write(?:lines)?\b")
# Standard input replaced by a text of the program's own, as in a test.
_OWN_INPUT = re.compile(r"\bstdin[ \t]*=[ \t]*[\w.]*StringIO\((?!os\.read|sys\.stdin|open)")
_AT_MARGIN = re.compile(
    r"^(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w|\w[^#\n]*\b(?:input\(|stdin\b))", re.M
)
_PLACE_HOLDER = re.compile(r"#.*\b(?:todo|your (?:code|solution)|implement)\b", re.IGNORECASE)
_ELIDED = re.compile(
    r"^([ \t]*)#[^\n\w]{0,4}(?:(?:\.\.\.|…)[ \t]*[A-Za-z(]|[^\n]{0,40}\b(?:"
    r"(?:rest|remainder) of (?:the |your )?(?:code|function|implementation|program|solution|class)"
    r"|same (?:\w+ )?as (?:above|before)|existing (?:code|implementation)"
    r"|(?:code|implementation|function) (?:remains|stays|is) (?:the )?(?:same|unchanged)))"
    r"[^\n]*\n*",
    re.IGNORECASE | re.MULTILINE,
)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#39|#x27);")
_INVISIBLE = {
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
}


def parse(text: str) -> ast.Module | None:
    """Parse a text as a module; None if it is not Python or too long."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in the answer
            return ast.parse(text)
    except _NO_PYTHON:
        return None


def compiles(text: str) -> bool:
    """Whether a text is a module; a function's body with a ``return`` is none."""
    if parse(text) is None:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "answer", "exec", dont_inherit=True)
    except _NO_PYTHON:
        return False
    return True


def visible(text: str) -> str:
    """Replace unusual blanks by a space; remove marks of byte order and of zero width."""
    return text if text.isascii() else text.translate(_INVISIBLE)


def readable(code: str) -> str:
    """A block, without indentation, invisible characters or entities if only they spoil it."""
    indented = code[:1] in (" ", "\t")
    plain = code.isascii() and not _ENTITY.search(code)
    if not indented and (plain or Source(code).is_program):
        return code
    seen = visible(code)
    versions = (textwrap.dedent(version) for version in (code, seen, html.unescape(seen)))
    return next((version for version in versions if Source(version).is_program), code)


class Source:
    """Facts about a piece of Python source, each computed when it is needed."""

    def __init__(self, code: str) -> None:
        self.code = code

    @cached_property
    def tree(self) -> ast.Module | None:
        return parse(self.code)

    @cached_property
    def body(self) -> Sequence[ast.stmt]:
        return self.tree.body if self.tree else ()

    @cached_property
    def _words(self) -> str:
        """The code without comments and the content of strings."""
        literal = PYTHON.literal
        return literal.sub(
            lambda m: "" if m[0][0] == "#" or not is_closed(m[0]) else '""', self.code
        )

    @cached_property
    def reads(self) -> bool:
        """Whether it reads standard input, and does not put a text of its own in its place."""
        return _INPUT.search(self._words) is not None and not _OWN_INPUT.search(self._words)

    @cached_property
    def writes(self) -> bool:
        return _OUTPUT.search(self._words) is not None

    @cached_property
    def acts(self) -> bool:
        """Whether the top level calls anything."""
        steps = (s for s in self.body if not isinstance(s, (*DEFINITIONS, *IMPORTS)))
        return any(isinstance(node, ast.Call) for step in steps for node in ast.walk(step))

    @property
    def is_whole(self) -> bool:
        """Whether it reads, computes and prints: a whole answer on standard input."""
        return self.reads and self.writes and self.acts

    @cached_property
    def definitions(self) -> frozenset[str]:
        """Names of functions and classes, methods included."""
        return frozenset(_DEFINITION.findall(self.code))

    @property
    def is_clear(self) -> bool:
        """Whether it defines something or reads input, as seen without parsing it."""
        return _AT_MARGIN.search(self.code) is not None

    @cached_property
    def has_substance(self) -> bool:
        """Whether it is Python that defines a function or class, or reads standard input."""
        return self.tree is not None and bool(self.definitions or self.reads)

    @cached_property
    def has_statements(self) -> bool:
        """Whether it is more than names and literals, as in a sample of output."""
        return any(map(_does_something, self.body))

    @cached_property
    def is_program(self) -> bool:
        return self.has_statements and compiles(self.code)

    @cached_property
    def is_attempt(self) -> bool:
        """Whether a text that does not parse appears to be meant as a program."""
        indented = self.code[:1] in (" ", "\t")
        if indented and parse(f"if 1:\n{self.code}"):
            return False  # a fragment of a function
        return bool(self.definitions) or self.reads

    def is_full(self, names: Set[str]) -> bool:
        """Whether a function of these names has content, and no comment stands for left-out code.

        A whole program is full whatever its comments are.
        """
        if self.is_whole:
            return True
        nodes = (node for statement in self.body for node in ast.walk(statement))
        functions = [n for n in nodes if isinstance(n, FUNCTIONS) and n.name in names]
        if functions and all(self._is_stub(function) for function in functions):
            return False
        return not any(map(self._stands_for_code, _ELIDED.finditer(self.code)))

    def _is_stub(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function has only a docstring, ``pass``, an error or a place holder."""
        lines = self.code.split("\n")[function.lineno - 1 : function.end_lineno]
        is_open = any(map(_PLACE_HOLDER.search, lines))
        return all(
            isinstance(step, ast.Pass | ast.Raise)
            or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
            or (isinstance(step, ast.Return) and (is_open or not step.value) and _is_constant(step))
            for step in function.body
        )

    def _stands_for_code(self, comment: re.Match[str]) -> bool:
        """Whether nothing follows a comment in its block, or what follows lacks something."""
        follows = self.code.startswith(comment[1], comment.end()) and comment.end() < len(self.code)
        return not follows or bool(self.missing)

    @cached_property
    def bound(self) -> dict[str, bool]:
        """Names that the top level binds outside of main guards; True for what is no variable."""
        bound: dict[str, bool] = {}
        for statement in self.body:
            if not is_main_guard(statement):
                nodes = ast.walk(statement)
                defines = any(isinstance(node, (*DEFINITIONS, *IMPORTS)) for node in nodes)
                for name in bound_by(statement):
                    bound[name] = bound.get(name, False) or defines or name.isupper()
        return bound

    @cached_property
    def names(self) -> frozenset[str]:
        """Names that it defines or binds."""
        return self.definitions | self.bound.keys()

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(name for name, lasts in self.bound.items() if not lasts)

    @cached_property
    def is_data(self) -> bool:
        """Whether it only names values, as an example does."""
        return bool(self.variables) and not self.reads and all(map(_is_data, self.body))

    @cached_property
    def imported(self) -> frozenset[str]:
        """Names imported from modules besides the standard ones, such as other files."""
        return frozenset(
            alias.asname or alias.name
            for node in self.body
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] not in sys.stdlib_module_names
            for alias in node.names
        )

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names that are used but bound nowhere; those of ``imported`` count as not bound."""
        if self.tree is None or "import *" in self.code:
            return frozenset()
        try:
            tables = [symtable.symtable(self.code, "answer", "exec")]
        except _NO_PYTHON:
            return frozenset()
        used, bound = set[str](), set[str]()
        for table in tables:  # grows while it is read
            tables += table.get_children()
            for symbol in table.get_symbols():
                if symbol.is_referenced() and (symbol.is_global() or len(tables) == 1):
                    used.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_parameter():
                    bound.add(symbol.get_name())
        return frozenset(used - (bound - self.imported) - _BUILTINS)


def is_main_guard(statement: ast.stmt) -> bool:
    tests = ast.walk(statement.test) if isinstance(statement, ast.If) else ()
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in tests)


def bound_by(statement: ast.stmt) -> frozenset[str]:
    """Names that a statement binds in its own scope."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, IMPORTS):
            names.update((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif not isinstance(node, _SCOPES):
            pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _is_constant(step: ast.Return) -> bool:
    return step.value is None or isinstance(step.value, ast.Constant)


def _does_something(statement: ast.stmt) -> bool:
    # Prose such as "Complexity: O(n)" and "Output: 5" parses as annotations.
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return not isinstance(statement, ast.Pass)


def _is_data(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return any(isinstance(node, ast.Constant) for node in ast.walk(statement.value))
    return isinstance(statement, ast.Expr)


def called_functions(tests: Sequence[str], setup: str = "") -> frozenset[str]:
    """Names of the functions that tests call and the answer must define.

    Builtins count only if the tests call nothing else.
    """
    trees = [tree for tree in map(parse, (*tests, setup)) if tree]
    bound = {name for tree in trees for statement in tree.body for name in bound_by(statement)}
    called = {
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } - bound
    return frozenset(called - _BUILTINS) or frozenset(called)


def future_imports(code: str) -> tuple[list[str], str]:
    """Split ``from __future__`` imports, which must come first, from the rest of a module.

    The rest keeps its line numbers.
    """
    tree = parse(code) if "__future__" in code else None
    imports = [
        node
        for node in (tree.body if tree else ())
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    lines = code.split("\n")
    for node in reversed(imports):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last - 1].encode()[node.end_col_offset :].decode().lstrip(" \t;")
        lines[first:last] = [(before + after).rstrip("; "), *[""] * (last - first - 1)]
    return [ast.unparse(node) for node in imports], "\n".join(lines)
