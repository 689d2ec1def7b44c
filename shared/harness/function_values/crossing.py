"""Types that may cross between an answer and its tests, and how numbers are written.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import builtins
import struct
import sys
import types

# Bound before the answer runs, because it may replace them.
from builtins import (
    BaseException,
    Exception,
    all,
    dict,
    frozenset,
    getattr,
    hasattr,
    isinstance,
    issubclass,
    len,
    object,
    str,
    type,
    zip,
)

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MAX_DEPTH = 1500
# Arrays need not be checked one by one; shorter lists are not worth it.
MIN_ARRAY = 8
INT64, DOUBLE, COUNT = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<I")
HANDLE = struct.Struct("<BQB")
# Of a message: its size, then its bytes. The answer's descriptors for calls and for replies.
SIZE, CALLS = struct.Struct("<Q"), (3, 4)
MAX_COUNT, MAX_INT64 = (1 << 32) - 1, 1 << 63
# Kinds of handles.
OBJECT, ITERATOR, GENERATOR, ITERABLE, FUNCTION, AWAITABLE = b"oigcfw"

# Built-in types and exceptions, which cross by name.
TYPES = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and value.__name__ == name
}
TYPES["NoneType"] = type(None)
EXCEPTIONS = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and "Group" not in name
}
FUNCTIONS = {
    name: value
    for name, value in vars(builtins).items()
    if type(value) is type(len) and value.__name__ == name
}
# Those that construct a factory's default value without side effects.
FACTORIES = ("list", "dict", "set", "int", "float", "str", "bool", "tuple", "frozenset", "bytes")


# Forms of instances of the tests' own classes.
MEMBER, FIELDS_TUPLE, ARGUMENTS, FIELDS = "enum", "tuple", "error", "fields"
# Fields that follow the value in which the instance is, so that long chains are not nested deeply.
LATER, LATER_DEPTH = "later", 100


class Classes:
    """Classes that the prompt or the setup defines, which both sides have.

    Args:
        names: Their names.
        namespace: Where this side has them.
    """

    def __init__(self, names: Iterable[str] = (), namespace: Mapping[str, Any] = {}) -> None:
        self.names = frozenset(names)
        self.namespace = namespace

    def find(self, name: str) -> Any:
        """Return the shared class or built-in exception of that name; None without one."""
        found = self.namespace.get(name) if name in self.names else EXCEPTIONS.get(name)
        return found if isinstance(found, type) else None

    def name_of(self, kind: type) -> str | None:
        """Return the name of a class, of an exception's nearest base; None if there is none."""
        for base in kind.__mro__ if issubclass(kind, BaseException) else (kind,):
            for name in (*self.names, base.__name__):
                if isinstance(name, str) and self.find(name) is base:
                    return name
        return None


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of an instance."""
    slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    found.update(getattr(value, "__dict__", {}))
    return {name: field for name, field in found.items() if not name.startswith("__")}


def _is_field(kind: type, name: str) -> bool:
    """Whether an instance may have a field, which must not hide a method or constant."""
    found = _found_in(kind, name)
    if type(found) is types.MemberDescriptorType:  # of ``__slots__``
        return True
    hides = hasattr(type(found), "__get__") or (found is not None and name.isupper())
    return not (hides or name.startswith("__"))


def _found_in(kind: type, name: str) -> Any:
    """Return what a class has by this name, None if nothing, without calling descriptors."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)


def set_fields(value: Any, parts: tuple[Any, ...]) -> None:
    """Give an instance these fields: names and values in turn.

    Raises:
        CodecError: They cannot be its fields.
    """
    names = parts[::2]
    if not all(type(name) is str and _is_field(type(value), name) for name in names):
        raise CodecError("no fields")
    for name in fields_of(value):
        if name not in names:
            object.__delattr__(value, name)
    for name, field in zip(names, parts[1::2]):
        object.__setattr__(value, name, field)


class CodecError(Exception):
    """Bytes that are no value."""


class UncrossableError(Exception):
    """A value that cannot cross into the answer's process, for example a function of the tests."""


# Types of the standard library: name, module, and whether they are mutable. They are looked up when
# one is met, because a module that nobody imported has no values.

MODULES = {
    "Fraction": "fractions",
    "Decimal": "decimal",
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
    "timedelta": "datetime",
    "deque": "collections",
    "Counter": "collections",
    "OrderedDict": "collections",
    "defaultdict": "collections",
    "UserList": "collections",
    "UserDict": "collections",
    "UserString": "collections",
    "array": "array",
}
DICTS = ("Counter", "OrderedDict", "defaultdict")
VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


def is_function(value: Any) -> bool:
    return type(value) is type(len) and FUNCTIONS.get(value.__name__) is value


def loaded(name: str) -> Any:
    """Return one of the types above, or None if its module is not loaded."""
    return getattr(sys.modules.get(MODULES[name]), name, None)


def library_name(kind: type) -> str | None:
    """Return the name of a type above."""
    name = kind.__name__
    return name if name in MODULES and loaded(name) is kind else None


def library_type(name: str) -> Any:
    return getattr(__import__(MODULES[name]), name)
