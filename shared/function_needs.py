"""Why function tests need the answer's process: a static check of what they use besides values.

Two processes are enough where tests call the answer's functions with values and look at values.
What is not known to be so needs one process for both: another object that may reach the answer, an
attribute that no value has, the state of a process. It is decided from the problem's texts alone,
so an answer cannot bring it about.
"""

import ast
import builtins
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

CLASS_NAME = re.compile(r"_*[A-Z]\w*")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = frozenset(dir(builtins))
_MODULES = sys.stdlib_module_names | {"numpy"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN = (ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_UNKNOWN = ast.TryStar | ast.AsyncWith | ast.AsyncFor | ast.MatchClass
# Modules whose functions return values, and what of them is none. Constants of all modules.
_VALUE_MODULES = _words(
    "array ast asyncio base64 binascii bisect calendar cmath collections contextlib copy "
    "dataclasses datetime decimal enum fractions functools hashlib heapq itertools json math "
    "numbers numpy operator os random re statistics string struct sys textwrap time typing "
    "unicodedata"
)
_NO_VALUES = _words(
    "partial partialmethod cmp_to_key lru_cache cache wraps itemgetter attrgetter methodcaller "
    "count cycle repeat compile match search fullmatch finditer Random SystemRandom default_rng "
    "RandomState vectorize poly1d matrix datetime64 timedelta64 timezone ChainMap Struct suppress "
    "nullcontext closing Path"
)
_CONSTANTS = _words(
    "pi e inf nan tau infj nanj maxsize maxunicode float_info newaxis euler_gamma ascii_letters "
    "ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation printable whitespace "
    "sep MINYEAR MAXYEAR"
)
# Attributes of the modules os and sys that are no state.
_OF_SYSTEM = _CONSTANTS | {"path", "getsizeof", "version_info", "byteorder"}
# Calls that keep a function which they are given in what they return, but are no function.
_HOLDERS = _words("dict defaultdict deque OrderedDict SimpleNamespace setattr")
_FACTORIES = _words("namedtuple NamedTuple Enum IntEnum StrEnum make_dataclass type")
_NO_VALUES |= _FACTORIES
# Built-in functions that call what they are given.
_CALLERS = _words("map filter sorted min max callable iter")
# Methods that only call what they are given, or take a type.
_CONSUMERS = _words("sort assertRaises assertRaisesRegex assertIsInstance astype view")
# Modules, functions and attributes that belong to a process, or show what is no value.
_STATE = _words(
    "mock logging warnings builtins gc weakref multiprocessing signal ctypes importlib inspect "
    "atexit tracemalloc contextvars dis io tempfile shutil subprocess socket locale traceback "
    "seed getstate setstate getcontext setcontext localcontext environ getenv patch "
    "redirect_stdout redirect_stderr set_printoptions printoptions seterr errstate"
)
_STATE_BUILTINS = _words("open input globals locals exec eval compile __import__ breakpoint")
_TYPES = (str, bytes, int, float, complex, list, tuple, dict, set, range, slice)
_LIBRARY_TYPES = (Counter, deque, Fraction, Decimal, datetime, timedelta)
_ARRAY = _words(
    "all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot dtype fill flat "
    "flatten item itemsize max mean min nbytes ndim nonzero prod ravel repeat reshape round shape "
    "size sort squeeze std sum swapaxes take tobytes tolist trace transpose var T"
)
_METHODS = _ARRAY.union(
    *({n for n in dir(kind) if n[0] != "_"} for kind in (*_TYPES, *_LIBRARY_TYPES))
) | {"with_traceback", "sort", "__init__"}
_DATA = _words(
    "real imag numerator denominator start stop step year month day hour minute second days "
    "seconds microsecond microseconds tzinfo maxlen args dtype shape size ndim T flat itemsize "
    "nbytes default_factory"
)
_METHODS |= _DATA
_BASES = _words("object Enum IntEnum NamedTuple Generic Exception")
_DECORATORS = _words("property setter staticmethod classmethod")


def parents_of(trees: Iterable[ast.Module]) -> dict[ast.AST, ast.AST]:
    """Return all nodes of the trees but constants and operators, each with its parent before it."""
    parents: dict[ast.AST, ast.AST] = {}
    for tree in trees:
        waiting: list[ast.AST] = [tree]
        for node in waiting:
            parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, _PLAIN)]
            parents.update(dict.fromkeys(parts, node))
            waiting += parts
    return parents


def needs_of(
    setup: ast.Module, parents: dict[ast.AST, ast.AST], names: frozenset[str]
) -> str | None:
    """Return why tests need the answer's process, None if they do not.

    ``setup`` runs before tests and answer, on both sides. ``parents`` has the nodes of setup and
    tests. ``names`` are the answer's functions and classes that they use.
    """
    return next(_Check(setup, parents, names).reasons(), None)


def classes_of(setup: ast.Module) -> list[str]:
    """Return the classes that a setup defines, by a statement or by a call such as namedtuple."""
    classes = [node.name for node in setup.body if isinstance(node, ast.ClassDef)]
    for node in setup.body:
        made_by = getattr(getattr(node, "value", None), "func", node)
        if isinstance(node, ast.Assign) and last_name(made_by) in _FACTORIES:
            classes += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return classes


def callee(node: ast.AST) -> str | None:
    """Return the name of a function that is called by it."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id if called else None  # type: ignore[attr-defined]


class _Check:
    def __init__(
        self, setup: ast.Module, parents: dict[ast.AST, ast.AST], names: frozenset[str]
    ) -> None:
        self.setup = setup
        self.of_setup = frozenset(parents_of([setup]))
        self.parents = parents
        self.nodes = list(parents)
        self.own: dict[str, _Function | ast.ClassDef] = {
            node.name: node for node in self.nodes if isinstance(node, _Function | ast.ClassDef)
        }
        self.generators = {
            own
            for own in self.own.values()
            if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(own))
        }
        self.imported = dict(self._imported())  # names, and the modules that they are or come from
        self.shared = frozenset(classes_of(setup))
        fields, methods = self._fields()
        self.data = _DATA | fields  # attributes that are values
        self.attributes = self.data | _METHODS | methods  # what a value may have
        self.names = names
        self.aliases = frozenset[str]()  # variables and parameters that hold such a function
        self.no_values = frozenset(self.own) - names
        self._add_aliases()

    # Names

    def _imported(self) -> Iterator[tuple[str, str]]:
        bound = {node.id for node in self.nodes if isinstance(node, ast.Name) and _stores(node)}
        bound |= {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        yield from ((name, name) for name in _MODULES - bound - set(self.own))
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)
            elif isinstance(node, ast.ImportFrom):
                yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)

    def _fields(self) -> tuple[set[str], set[str]]:
        """Return the names of fields and methods of classes that the texts define."""
        fields, methods = set[str](), set[str]()
        for node in self.nodes:
            inside = isinstance(self.parents[node], ast.ClassDef)
            if inside and isinstance(node, _Function):
                (fields if node.decorator_list else methods).add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign) and inside:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                fields |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Attribute) and _stores(node) and _root(node) == "self":
                fields.add(node.attr)
            elif isinstance(node, ast.ExceptHandler) and node.type is not None:
                if "StopIteration" in ast.unparse(node.type):
                    fields.add("value")
            elif isinstance(node, ast.ClassDef) and "Enum" in ast.unparse(node):
                fields |= {"name", "value"}
            elif callee(node) in ("namedtuple", "NamedTuple", "make_dataclass", "Enum"):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant):
                        fields |= set(re.findall(r"\w+", str(part.value)))
                methods |= {"_replace", "_asdict"}
        return fields, methods - {"__init__"}

    def _add_aliases(self) -> None:
        """Find variables and parameters that hold the answer's functions, or what is no value."""
        bindings = [binding for node in self.nodes for binding in self._bindings(node)]
        count = -1
        while count != (count := len(self.aliases) + len(self.no_values)):
            for targets, value in bindings:
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                names |= {target.arg for target in targets if isinstance(target, ast.arg)}
                if self._is_answer(value):
                    self.aliases |= names
                elif self._is_no_value(value):
                    self.no_values |= names

    def _bindings(self, node: ast.AST) -> Iterator[tuple[Sequence[ast.AST], ast.expr]]:
        """Yield pairs of targets and value."""
        if isinstance(node, ast.Assign):
            yield node.targets, node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield [node.optional_vars], node.context_expr
        elif isinstance(node, ast.For | ast.comprehension):
            if isinstance(node.iter, ast.List | ast.Tuple):
                yield from (([node.target], value) for value in node.iter.elts)
        elif isinstance(node, ast.Call) and isinstance(
            own := self.own.get(callee(node) or ""), _Function
        ):
            pairs = zip(own.args.args, node.args, strict=False)
            yield from (([parameter], value) for parameter, value in pairs)

    def _is_answer(self, node: ast.AST | None) -> bool:
        """Whether it is the name of something of the answer."""
        if not isinstance(node, ast.Name) or _stores(node):
            return False
        return node.id in self.aliases or node.id in self.names

    # Reasons

    def reasons(self) -> Iterator[str]:
        annotations = {inner for node in self.nodes for inner in _annotation(node)}
        for node in self.nodes:
            if node in annotations:
                continue
            if isinstance(node, ast.Name):
                yield from self._of_name(node)
            elif isinstance(node, ast.Attribute):
                yield from self._of_attribute(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._of_class(node)
            elif isinstance(node, ast.withitem):
                if _root(node.context_expr) not in (*self.imported, "self"):
                    yield "the tests use a context manager"
            elif isinstance(node, ast.Assign) and self.parents[node] is self.setup:
                yield from self._of_variable(node)
            elif isinstance(node, _UNKNOWN) or getattr(node, "is_async", False):
                yield f"the tests have the statement {type(node).__name__}"
            elif isinstance(node, ast.Global) and node in self.of_setup:
                yield f"the setup changes its variables: {', '.join(node.names)}"
            if self._is_no_value(node) and not self._stays(node):
                yield f"the tests use more than values: {_shown(node)}"

    def _of_name(self, node: ast.Name) -> Iterator[str]:
        if self._is_answer(node):
            if CLASS_NAME.fullmatch(node.id):
                if not self._is_called_for_a_value(node):
                    yield f"the tests use a class of the answer: {node.id}"
            elif not self._is_used_as_function(node):
                yield f"the tests look at a function: {_shown(self.parents[node])}"
        elif node.id in _STATE_BUILTINS and node.id not in self.own:
            yield f"the tests use {node.id}"
        elif not _STATE.isdisjoint(self.imported.get(node.id, "").split(".")):
            yield f"the tests use {self.imported[node.id]}"

    def _of_attribute(self, node: ast.Attribute) -> Iterator[str]:
        root, module = _root(node), self._module(node)
        of = self.imported.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if self._is_answer(node.value):
            yield f"the tests use an attribute of a function: {_shown(node)}"
        elif node.attr in _STATE or (of in ("os", "sys") and node.attr not in _OF_SYSTEM):
            yield f"the tests use the state of the process: {_shown(node)}"
        elif _stores(node) and (root in self.own or (module and root not in self.no_values)):
            yield f"the tests change {_shown(node)}"
        elif not self._has_value(node, root):
            yield f"the tests use an attribute of a result: {node.attr}"

    def _has_value(self, node: ast.Attribute, root: str | None) -> bool:
        """Whether it is something of a module, or an attribute that a value has."""
        if root in ("self", "cls") or callee(node.value) == "super":
            return True
        if self._is_imported(root) and _is_path(node):
            return not node.attr.startswith("__")
        base: ast.AST = node.value
        while isinstance(base, ast.Call | ast.Attribute):
            if self._is_no_value(base):
                return True  # of an object that the tests make
            base = base.func if isinstance(base, ast.Call) else base.value
        return self._is_no_value(base) or node.attr in self.attributes

    def _of_class(self, node: ast.ClassDef) -> Iterator[str]:
        names = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
        bases = all(name in _BASES | self.shared or _is_exception(name) for name in names)
        plain = bases and not node.keywords and not any(map(_is_odd, node.body))
        if node in self.of_setup and not (plain and self.parents[node] is self.setup):
            yield f"the instances of a class are more than fields: {node.name}"

    def _of_variable(self, node: ast.Assign) -> Iterator[str]:
        """An answer may fill a container of the setup, or a test ask for its identity."""
        made_by = last_name(getattr(node.value, "func", node))
        if isinstance(node.value, ast.Constant | ast.Tuple) or made_by in _FACTORIES:
            return
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        uses = (use for use in self.nodes if isinstance(use, ast.Name) and use.id in names)
        if not self.of_setup.issuperset(uses):
            yield f"the tests look at a variable of the setup: {', '.join(sorted(names))}"

    # Values

    def _is_no_value(self, node: ast.AST) -> bool:
        """Whether an expression is, or may be, what cannot cross to the answer."""
        if isinstance(node, ast.Lambda):
            return True
        if isinstance(node, ast.Name):
            if _stores(node) or self._is_answer(node):
                return False
            if node.id in self.no_values:
                return True
            if node.id == "self" and not isinstance(self.parents[node], ast.Attribute | ast.Return):
                return node not in self.of_setup
            return "." in self.imported.get(node.id, "") and node.id not in _CONSTANTS
        if isinstance(node, ast.Attribute) and not _stores(node):
            root = _root(node)
            if self._is_imported(root) and _is_path(node):
                return node.attr not in _CONSTANTS
            return node.attr not in self.data and root not in ("self", "cls")
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            root = _root(node.func)
            if self._is_imported(root) and _is_path(node.func):
                return name in _NO_VALUES or self._module(node.func) not in _VALUE_MODULES
            return self._makes_no_value(callee(node) or "", node)
        return False

    def _makes_no_value(self, name: str, call: ast.Call) -> bool:
        """Whether a function of the tests makes an instance of their class, or an iterator."""
        own = self.own.get(name)
        if isinstance(own, _Function):
            return own in self.generators
        if name == "iter":
            return isinstance(self.parents[call], ast.Assign)
        return (
            name in self.no_values
            and (own is None or own not in self.of_setup)
            and (CLASS_NAME.fullmatch(name) is not None and name not in self.shared)
        )

    def _is_imported(self, name: str | None) -> bool:
        return name in self.imported and name not in self.aliases and name not in self.names

    def _module(self, node: ast.AST) -> str:
        return self.imported.get(_root(node) or "", "").partition(".")[0]

    def _stays(self, node: ast.AST) -> bool:
        """Whether what is no value is used where it cannot reach the answer."""
        parent = self.parents[node]
        if isinstance(parent, ast.keyword):
            node, parent = parent, self.parents[parent]
        if isinstance(parent, ast.Call):
            return node is parent.func or self._consumes(parent, node)
        if isinstance(parent, ast.Compare):
            return any(
                callee(side) == "type"
                or (isinstance(side, ast.Attribute) and side.attr == "dtype")
                or (isinstance(side, ast.Constant) and side.value is None)
                for side in (parent.left, *parent.comparators)
            )
        if isinstance(parent, ast.Assign):
            return all(isinstance(target, ast.Name) for target in parent.targets)
        if isinstance(parent, _Function):
            return node in parent.decorator_list
        if isinstance(parent, ast.Subscript):
            return node is parent.value and not isinstance(node, ast.Lambda)
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension):
            return node is parent.iter
        return isinstance(
            parent,
            ast.Attribute | ast.ExceptHandler | ast.Raise | ast.ClassDef | ast.Expr | ast.Assert
            | ast.BoolOp | ast.UnaryOp | ast.If | ast.While | ast.NamedExpr | ast.withitem,
        )  # fmt: skip

    def _consumes(self, call: ast.Call, argument: ast.AST) -> bool:
        """Whether a call only uses what it is given, and returns a value."""
        name = last_name(call.func) or ""
        if name in _HOLDERS or self._is_answer(call.func):
            return False
        if isinstance(call.func, ast.Name) and name not in self.imported:
            return name in _BUILTINS and name not in self.own
        root = _root(call.func)
        if root in self.no_values or (self._is_imported(root) and _is_path(call.func)):
            return True
        return name in _CONSUMERS

    def _is_used_as_function(self, node: ast.Name) -> bool:
        parent = self.parents[node]
        if isinstance(parent, ast.List | ast.Tuple):
            above = self.parents[parent]
            return isinstance(above, ast.For | ast.comprehension) and above.iter is parent
        if isinstance(parent, ast.keyword):
            parent = self.parents[parent]
        if isinstance(parent, ast.Call):
            name = last_name(parent.func) or ""
            if isinstance(parent.func, ast.Name) and name in _BUILTINS and name not in self.own:
                return node is parent.func or name in _CALLERS
            own = isinstance(self.own.get(name), _Function) and isinstance(parent.func, ast.Name)
            looks = name.startswith(("is", "get", "signature"))
            return node is parent.func or own or (self._consumes(parent, node) and not looks)
        return isinstance(parent, ast.Assign | ast.Assert | ast.NamedExpr | ast.Expr)

    def _is_called_for_a_value(self, node: ast.Name) -> bool:
        """Whether a class-like name is called like a function that returns a value."""
        call = self.parents[node]
        if not isinstance(call, ast.Call):
            return False
        if node is not call.func:  # the tested function may have such a name
            return isinstance(self.own.get(callee(call) or ""), _Function)
        parent = self.parents[call]
        if isinstance(parent, ast.Compare):
            others = (part for right in parent.comparators for part in ast.walk(right))
            return call is parent.left and not any(map(self._is_answer, others))
        return isinstance(parent, ast.UnaryOp | ast.BinOp)


def _stores(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def last_name(node: ast.AST) -> str | None:
    """Return the last name of a path."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _root(node: ast.AST) -> str | None:
    """Return the name with which a path of attributes, calls and subscripts begins."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_path(node: ast.AST) -> bool:
    """Whether it is names alone, such as ``os.path.join``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _annotation(node: ast.AST) -> Iterator[ast.AST]:
    for inner in (getattr(node, field, None) for field in ("annotation", "returns")):
        yield from ast.walk(inner) if isinstance(inner, ast.AST) else ()


def _is_exception(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _is_odd(node: ast.stmt) -> bool:
    """Whether a class's statement defines more than fields: slots, methods with unknown decorators,
    or methods for others to define.
    """
    if isinstance(node, _Function):
        usual = _DECORATORS.issuperset(map(last_name, node.decorator_list))
        return not usual or "NotImplementedError" in map(last_name, ast.walk(node))
    return isinstance(node, ast.Assign) and "__slots__" in map(last_name, node.targets)


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) < 60 else f"{text[:57]}..."
