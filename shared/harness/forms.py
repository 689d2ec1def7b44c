"""Forms of values: the types that cross between an answer and its tests, and their parts.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import builtins
import collections.abc
import sys
import types

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

# What crosses by its name: built-in types and constants, exceptions, functions.
BUILTINS = {
    name: value for name, value in vars(builtins).items() if getattr(value, "__name__", 0) == name
}
TYPES: dict[str, Any] = {name: kind for name, kind in BUILTINS.items() if isinstance(kind, type)}
EXCEPTIONS = {
    name: kind
    for name, kind in TYPES.items()
    if issubclass(kind, BaseException) and "Group" not in name
}
TYPES.update(NoneType=type(None), Ellipsis=..., NotImplemented=NotImplemented)
FUNCTIONS = {name: value for name, value in BUILTINS.items() if type(value) is type(len)}
LIBRARIES: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
# Types that construct a factory's default value without side effects.
FACTORIES = ("list", "dict", "set", "int", "float", "str", "bool", "tuple", "frozenset", "bytes")


class CodecError(Exception):
    """Bytes that are no value."""


class UncrossableError(Exception):
    """A value that cannot cross into the answer's process, for example a function of the tests."""


def is_function(value: Any) -> bool:
    return type(value) is type(len) and FUNCTIONS.get(value.__name__) is value


# What JSON has too, integers if they are not large.
PLAIN = {type(None), bool, float, str}
SCALARS = {*PLAIN, int}
# A scalar of a subclass becomes one of its base by the method of the base; a wrapper of a built-in
# value, which is equal to it, becomes that.
AS_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__, float: float.__float__, str: str.__str__, memoryview: bytes,
    collections.UserString: lambda value: value.data,
}  # fmt: skip


def dict_parts(value: Any) -> tuple[Any, ...]:
    return tuple(part for pair in value.items() for part in pair)


def defaultdict_parts(value: Any) -> tuple[Any, ...]:
    name = getattr(value.default_factory, "__name__", "")
    simple = name in FACTORIES and TYPES[name] is value.default_factory
    return (name if simple else None, *dict_parts(value))


def in_order(values: Iterable[Any]) -> list[Any]:
    """Return the members of a set such that one made of them has, if possible, the same order."""
    members = list(values)
    return members if list(set(members)) == members else members[::-1]


def bounds(value: range | slice) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def reduced(value: Any) -> tuple[Any, ...]:
    """Return the arguments that make a value again, as pickle finds them."""
    arguments: tuple[Any, ...] = value.__reduce_ex__(2)[1]
    return arguments


# The parts of a value by the name of its type.
FORMS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "list": list.__iter__,
    "tuple": tuple.__iter__,
    "dict": lambda value: [part for pair in dict.items(value) for part in pair],
    "set": lambda value: in_order(set.__iter__(value)),
    "frozenset": lambda value: in_order(frozenset.__iter__(value)),
    "int": lambda value: (hex(value),),
    "bytes": lambda value: (bytes.decode(value, "latin-1"),),
    "bytearray": lambda value: (bytes(value),),
    "complex": lambda value: (value.real, value.imag),
    **dict.fromkeys(("range", "slice"), bounds),
    "Fraction": lambda value: (value.numerator, value.denominator),
    "Decimal": lambda value: (str(value),),
    **dict.fromkeys(("date", "datetime", "time", "timedelta", "timezone"), reduced),
    "ZoneInfo": lambda value: (value.key,),
    "deque": lambda value: (value.maxlen, *value),
    **dict.fromkeys(("Counter", "OrderedDict"), dict_parts),
    "defaultdict": defaultdict_parts,
    "array": lambda value: (value.typecode, *value),
}
# Modules of the types that are not built in. They are looked up when a value is met: a module that
# nobody imported has no values.
MODULES = {
    "Fraction": "fractions",
    "Decimal": "decimal",
    "array": "array",
    "ZoneInfo": "zoneinfo",
    **dict.fromkeys(("date", "datetime", "time", "timedelta", "timezone"), "datetime"),
    **dict.fromkeys(("deque", "Counter", "OrderedDict", "defaultdict"), "collections"),
}
# Forms of mutable containers, which are numbered.
MUTABLE = {
    "list", "dict", "set", "bytearray", "deque", "Counter", "OrderedDict", "defaultdict", "array",
}  # fmt: skip
# Types of a constructor's arguments; by default those of dates and times.
ARGUMENTS = {
    "complex": (float,), "range": (int,), "slice": (object,), "Fraction": (int,), "Decimal": (str,),
    "ZoneInfo": (str,),
}  # fmt: skip
DATES, ZONES = (int, bytes), ("timedelta", "timezone", "ZoneInfo")
# Values that are made in another way.
MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "int": lambda parts: int(parts[0], 16),
    "bytes": lambda parts: parts[0].encode("latin-1"),
    "type": lambda parts: TYPES[parts[0]],
    "dict_keys": lambda parts: dict.fromkeys(parts).keys(),
    "dict_values": lambda parts: dict(enumerate(parts)).values(),
    "dict_items": lambda parts: dict(parts).items(),
}
VIEWS = set(map(type, ({}.keys(), {}.values(), {}.items())))


def form_name(kind: type) -> str | None:
    """Return the name of a type's form; None without one."""
    name = kind.__name__
    if name not in FORMS or TYPES.get(name) is kind:
        return name if name in FORMS else None
    module = sys.modules.get(MODULES.get(name, ""))
    return name if getattr(module, name, None) is kind else None


def form_type(name: str) -> Any:
    return getattr(__import__(MODULES[name]), name) if name in MODULES else TYPES[name]


def plain_number(value: Any) -> Any:
    """Convert a number of a library such as sympy to a built-in one; None for other values."""
    numbers = sys.modules.get("numbers")
    if numbers is None or type(value).__module__ == "numpy":
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Rational):
        return form_type("Fraction")(int(value.numerator), int(value.denominator))
    return float(value) if isinstance(value, numbers.Real) else None


def plain_container(value: Any) -> Any:
    """Convert a container, such as ``ChainMap`` or ``SortedList``, to a built-in one equal to it.

    None for other values.
    """
    if isinstance(value, collections.abc.Mapping):
        return dict(value.items())
    if isinstance(value, collections.abc.Set):
        return dict.fromkeys(value).keys()  # equal to a set, and in order
    return list(value) if isinstance(value, collections.abc.MutableSequence) else None


def made(name: str, parts: list[Any]) -> Any:
    """Return a value that has no number.

    Raises:
        CodecError: The parts are no arguments of its constructor; also any other exception.
    """
    if name in MAKERS:
        return MAKERS[name](parts)
    kinds = ARGUMENTS.get(name, DATES)
    if not all(isinstance(part, kinds) or form_name(type(part)) in ZONES for part in parts):
        raise CodecError("no arguments")
    return form_type(name)(*parts)


def filled(name: str, container: Any, parts: tuple[Any, ...]) -> Any:
    """Give an empty container its contents; returns it, or another one in its place."""
    if name == "array":
        return form_type(name)(parts[0], list(parts[1:]))
    if name == "deque" and parts[0] is not None:  # its bound cannot be set later
        container = form_type(name)((), parts[0])
    if name == "defaultdict":
        container.default_factory = TYPES[parts[0]] if parts[0] in FACTORIES else None
    update(container, parts[name in ("deque", "defaultdict") :])
    return container


# Forms of instances of the tests' own classes: a member of an enumeration, a named tuple, an
# exception, another one with its fields. Fields that come later follow the values of the message,
# so that long chains are not nested deeply.
MEMBER, NAMED_TUPLE, EXCEPTION, FIELDS, LATER = "member", "namedtuple", "error", "fields", "later"
INSTANCES = (MEMBER, NAMED_TUPLE, EXCEPTION)
LATER_DEPTH = 100


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
        kind = self.namespace.get(name) if name in self.names else EXCEPTIONS.get(name)
        return kind if isinstance(kind, type) else None

    def of(self, name: str) -> Any:
        """Return the class of that name.

        Raises:
            CodecError: There is none.
        """
        kind = self.find(name)
        if kind is None:
            raise CodecError("no class %s" % name)
        return kind

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
    fields = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    fields.update(getattr(value, "__dict__", {}))
    return {name: field for name, field in fields.items() if not name.startswith("__")}


def field_parts(value: Any) -> tuple[Any, ...]:
    return dict_parts(fields_of(value))


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


def _is_field(kind: type, name: str) -> bool:
    """Whether an instance may have a field, which must not hide a method or constant."""
    # Without calling descriptors.
    hidden: Any = next(
        (base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None
    )
    if type(hidden) is types.MemberDescriptorType:  # of ``__slots__``
        return True
    hides = hasattr(type(hidden), "__get__") or (hidden is not None and name.isupper())
    return not (hides or name.startswith("__"))


def instance(form: str, kind: Any, parts: list[Any]) -> Any:
    """Return an instance that has no number; no code of its class runs."""
    if form == MEMBER:
        return kind.__members__[parts[0]]
    if form == NAMED_TUPLE:
        value = tuple.__new__(kind, parts)
        if len(value) != len(kind._fields):
            raise CodecError("no fields")
        return value
    if not issubclass(kind, BaseException):
        raise CodecError("no exception")
    value = kind.__new__(kind)
    value.args, fields = parts
    set_fields(value, fields)
    return value


def exception_of(value: Any, classes: Classes, named: frozenset[str]) -> BaseException:
    """Build an exception from the names of its type's bases, its arguments and fields.

    Args:
        value: What the answer sent.
        classes: Classes that both sides have.
        named: What the tests name: an answer raises no other exception of a library, since one may
            mean something to a library that the tests use.
    """
    try:
        names, arguments, text, fields = value
        kinds = [classes.find(name) or library_exception(name, named) for name in names]
        exact = bool(kinds) and kinds[0] is not None
        arguments = tuple(arguments if exact else text)
        kind = next((kind for kind in kinds if kind and issubclass(kind, BaseException)), Exception)
        if "__init__" not in kind.__dict__ or kind.__module__ == "builtins":
            try:
                return kind(*arguments)
            except TypeError:  # of UnicodeDecodeError, for example
                pass
        made: BaseException = kind.__new__(kind)
        made.args = arguments
        if exact:
            set_fields(made, tuple(fields))
        return made
    except (TypeError, ValueError, AttributeError):
        raise CodecError("no exception") from None


def library_exception(name: str, named: frozenset[str]) -> Any:
    """Return an exception of a loaded library, ``module:name``, that the tests name."""
    module, _, attribute = name.partition(":")
    library = module.partition(".")[0]
    if attribute not in named or library not in (*LIBRARIES, "numpy"):
        return None
    kind = getattr(sys.modules.get(module), attribute, None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def contents(value: Any) -> tuple[Any, ...]:
    """Return the contents of a mutable container, as ``update`` expects them."""
    if isinstance(value, bytearray):
        return (bytes(value),)
    if isinstance(value, dict):
        return dict_parts(value)
    if hasattr(value, "ravel"):
        return tuple(value.ravel().tolist())
    if isinstance(value, (list, set)) or form_name(type(value)):
        return tuple(value)
    return field_parts(value)


def update(container: Any, parts: Any) -> None:
    """Give a mutable container new contents.

    Raises:
        CodecError: They cannot be contents of such a container.
    """
    if type(parts) is not tuple:
        raise CodecError("no contents")
    try:
        if isinstance(container, list):
            container[:] = parts
        elif isinstance(container, dict):
            container.clear()
            for key, item in zip(parts[::2], parts[1::2]):
                # ``update`` of a counter adds, that of ``dict`` loses an order.
                container[key] = item
        elif isinstance(container, bytearray):
            (data,) = parts
            if type(data) is not bytes:
                raise CodecError("no bytes")
            container[:] = data
        elif hasattr(container, "ravel"):
            import numpy

            container[...] = numpy.array(parts, container.dtype).reshape(container.shape)
        elif hasattr(container, "typecode"):
            container[:] = type(container)(container.typecode, list(parts))
        elif isinstance(container, set):
            container.clear()
            container.update(parts)
        elif hasattr(container, "maxlen"):
            container.clear()
            container.extend(parts)
        else:
            set_fields(container, parts)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CodecError(str(error)) from None
