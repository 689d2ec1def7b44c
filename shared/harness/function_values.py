"""Codec of the values that cross between an answer and its tests, in two processes.

It runs in the sandbox. Standard library and Python 3.8 syntax only. A value crosses as an exact
built-in value (or one of a few of the standard library's types), so that no code of the answer
comes with it: a subclass crosses as its base. Objects of other types cross as numbers of *handles*.
Neither pickle nor marshal is used, because the decoder's input is hostile: it never raises anything
but ``CodecError``, allocates no more than a small multiple of what it is given, and calls nothing
but constructors of built-in types.

Mutable containers are numbered in the order in which they are met, and one that occurs again is a
reference. So results may share parts with each other, contain themselves, or be an argument.

Format: a byte for the type, then its contents; numbers are little-endian.
"""

from __future__ import annotations

import builtins
import struct
import sys

# Bound before the answer runs, because it may replace them.
from builtins import (
    BaseException,
    Exception,
    RecursionError,
    bool,
    bytearray,
    bytes,
    complex,
    dict,
    float,
    frozenset,
    getattr,
    hasattr,
    id,
    int,
    isinstance,
    len,
    list,
    map,
    range,
    repr,
    set,
    slice,
    str,
    tuple,
    type,
    zip,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MAX_DEPTH = 600
# Arrays need not be checked one by one; shorter lists are not worth it.
MIN_ARRAY = 8
INT64, DOUBLE, COUNT = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<I")
HANDLE = struct.Struct("<BQB")
# Of a message: its size, then its bytes. The answer's descriptors for calls and for replies.
SIZE, CALLS = struct.Struct("<Q"), (3, 4)
MAX_COUNT, MAX_INT64 = (1 << 32) - 1, 1 << 63
ARRAY_TYPES = "bBhHiIlLqQfdu"
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


VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


class Encoder:
    """Encodes one message; what cannot cross is refused with ``UncrossableError``.

    Attributes:
        data: The bytes so far.
        objects: The mutable containers so far, by their numbers.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.depth = 0

    def copy_objects(self, objects: Iterable[Any]) -> None:
        """Number containers that the other side knows already."""
        for value in objects:
            self.register(value)

    def register(self, value: object) -> None:
        self.numbers[id(value)] = len(self.objects)
        self.objects.append(value)  # keeps it alive, and so its id its own

    def add(self, value: Any) -> None:
        """Encode a value.

        Raises:
            UncrossableError: It cannot cross.
            RecursionError: It is nested too deeply.
        """
        method = EXACT.get(type(value))
        if method is not None:
            method(self, value)
        else:
            self.add_other(value)

    def add_other(self, value: Any) -> None:
        if isinstance(value, type):
            self.add_type(value)
        elif not self.add_library(type(value), value):
            self.refuse(value)

    def refuse(self, value: object) -> None:
        raise UncrossableError("a value of type %s" % type(value).__name__)

    def tag(self, tag: bytes, count: int) -> None:
        if count > MAX_COUNT:
            raise MemoryError
        self.data += tag
        self.data += COUNT.pack(count)

    def add_none(self, _: None) -> None:
        self.data += b"N"

    def add_bool(self, value: bool) -> None:
        self.data += b"T" if value else b"F"

    def add_int(self, value: int) -> None:
        if -MAX_INT64 <= value < MAX_INT64:
            self.data += b"i"
            self.data += INT64.pack(value)
        else:
            size = value.bit_length() // 8 + 1
            self.tag(b"I", size)
            self.data += value.to_bytes(size, "little", signed=True)

    def add_float(self, value: float) -> None:
        self.data += b"f"
        self.data += DOUBLE.pack(value)

    def add_complex(self, value: complex) -> None:
        self.data += b"c" + DOUBLE.pack(value.real) + DOUBLE.pack(value.imag)

    def add_text(self, value: str) -> None:
        self.add_bytes(value.encode("utf-8", "surrogatepass"), b"s")

    def add_subclass_text(self, value: str) -> None:
        self.add_bytes(str.encode(value, "utf-8", "surrogatepass"), b"s")

    def add_bytes(self, value: bytes | bytearray, tag: bytes = b"b") -> None:
        self.tag(tag, len(value))
        self.data += value

    def add_bytearray(self, value: bytearray) -> None:
        if not self.add_reference(value):
            self.register(value)
            self.add_bytes(value, b"B")

    def add_range(self, value: range) -> None:
        self.data += b"r"
        self.add_all((value.start, value.stop, value.step))

    def add_slice(self, value: slice) -> None:
        self.data += b":"
        self.add_all((value.start, value.stop, value.step))

    def add_type(self, value: type) -> None:
        name = value.__name__
        if TYPES.get(name) is value:
            self.data += b"Y"
            self.add_text(name)
        else:
            self.refuse(value)

    def add_ellipsis(self, _: object) -> None:
        self.data += b"E"

    def add_reference(self, value: object) -> bool:
        number = self.numbers.get(id(value))
        if number is not None:
            self.tag(b"R", number)
        return number is not None

    def add_all(self, values: Iterable[Any]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise RecursionError("a value that is nested too deeply")
        for value in values:
            self.add(value)
        self.depth -= 1

    def add_list(self, value: list[Any]) -> None:
        if self.add_reference(value):
            return
        self.register(value)
        if len(value) < MIN_ARRAY or not self.add_array(value, b"l"):
            self.tag(b"[", len(value))
            self.add_all(value)

    def add_tuple(self, value: tuple[Any, ...]) -> None:
        if len(value) < MIN_ARRAY or not self.add_array(value, b"t"):
            self.tag(b"(", len(value))
            self.add_all(value)

    def add_array(self, value: list[Any] | tuple[Any, ...], tag: bytes) -> bool:
        """Encode numbers of one type at once; returns whether they are."""
        kinds = set(map(type, value))
        for kind, code in ((int, "q"), (float, "d")):
            if kinds == {kind}:
                try:
                    packed = struct.pack("<%d%s" % (len(value), code), *value)
                except struct.error:  # a large integer
                    return False
                self.tag(tag + code.encode(), len(value))
                self.data += packed
                return True
        return False

    def add_dict(self, value: dict[Any, Any]) -> None:
        if not self.add_reference(value):
            self.register(value)
            self.add_pairs(value)

    def add_pairs(self, value: dict[Any, Any]) -> None:
        pairs = list(dict.items(value))
        self.tag(b"{", len(pairs))
        self.add_all(part for pair in pairs for part in pair)

    def add_set(self, value: set[Any]) -> None:
        if not self.add_reference(value):
            self.register(value)
            self.tag(b"S", len(value))
            self.add_all(in_order(value))

    def add_frozenset(self, value: frozenset[Any]) -> None:
        self.tag(b"Z", len(value))
        self.add_all(in_order(value))

    def add_view(self, value: Any) -> None:
        self.data += b"K"
        self.add_all((VIEWS[type(value)], tuple(value)))

    def add_library(self, kind: type, value: Any) -> bool:
        """Encode a value as one of a type of the standard library; returns whether it is one."""
        name = library_name(kind)
        if name is None:
            return False
        mutable = name == "deque" or name in DICTS
        if mutable and self.add_reference(value):
            return True
        if mutable:
            self.register(value)
        parts = LIBRARY[name](value)
        self.data += b"L"
        self.add_text(name)
        self.add_all((tuple(parts),))
        return True


def in_order(value: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the members of a set such that one made of them has, if possible, the same order."""
    members = list(value)
    return members if list(set(members)) == members else members[::-1]


def zone_parts(value: Any) -> tuple[Any, ...]:
    """Return a fixed offset from UTC in microseconds; None for a naive time."""
    offset = value.utcoffset()
    if offset is None:
        return (None,)
    return ((offset.days * 86400 + offset.seconds) * 1000000 + offset.microseconds,)


def dict_parts(value: Any) -> tuple[Any, ...]:
    return tuple(part for pair in value.items() for part in pair)


def defaultdict_parts(value: Any) -> tuple[Any, ...]:
    name = getattr(value.default_factory, "__name__", "")
    known = name in FACTORIES and TYPES[name] is value.default_factory
    return (name if known else None, *dict_parts(value))


LIBRARY: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "Fraction": lambda value: (value.numerator, value.denominator),
    "Decimal": lambda value: (str(value),),
    "date": lambda value: (value.year, value.month, value.day),
    "datetime": lambda value: (
        *(value.year, value.month, value.day, value.hour, value.minute, value.second),
        *(value.microsecond, value.fold, *zone_parts(value)),
    ),
    "time": lambda value: (
        *(value.hour, value.minute, value.second),
        *(value.microsecond, value.fold, *zone_parts(value)),
    ),
    "timedelta": lambda value: (value.days, value.seconds, value.microseconds),
    "deque": lambda value: (value.maxlen, *value),
    "Counter": dict_parts,
    "OrderedDict": dict_parts,
    "defaultdict": defaultdict_parts,
    "UserList": lambda value: (list(value),),
    "UserDict": lambda value: (dict(value),),
    "UserString": lambda value: (str(value),),
    "array": lambda value: (value.typecode, tuple(value)),
}

EXACT: dict[type, Callable[[Encoder, Any], None]] = {
    type(None): Encoder.add_none,
    bool: Encoder.add_bool,
    int: Encoder.add_int,
    float: Encoder.add_float,
    complex: Encoder.add_complex,
    str: Encoder.add_text,
    bytes: Encoder.add_bytes,
    bytearray: Encoder.add_bytearray,
    list: Encoder.add_list,
    tuple: Encoder.add_tuple,
    dict: Encoder.add_dict,
    set: Encoder.add_set,
    frozenset: Encoder.add_frozenset,
    range: Encoder.add_range,
    slice: Encoder.add_slice,
    type(...): Encoder.add_ellipsis,
    type(NotImplemented): lambda encoder, _: encoder.data.extend(b"X"),
    **dict.fromkeys(VIEWS, Encoder.add_view),
}


class ObjectEncoder(Encoder):
    """Encodes results of the answer: subclasses as their bases, other objects as handles."""

    def __init__(self, handles: Handles) -> None:
        super().__init__()
        self.handles = handles

    def add_other(self, value: Any) -> None:
        if isinstance(value, type):
            self.add_type(value)
            return
        kind = type(value)
        for base in kind.__mro__:
            if base in BASES:
                BASES[base](self, value)
                return
            if self.add_library(base, value):
                return
        if not add_numpy(self, value):
            self.refuse(value)

    def refuse(self, value: object) -> None:
        kind, number, truth = self.handles.describe(value)
        name = str(type(value).__name__)[:100]
        self.data += b"H" + HANDLE.pack(kind, number, truth)
        self.add_text(name)


def add_numpy(encoder: Encoder, value: Any) -> bool:
    """Encode a scalar as the number that it is, an array with its type and shape.

    Returns whether the value is one of these.
    """
    if type(value).__module__ != "numpy" or getattr(value, "dtype", NoType).kind not in "biufcSU":
        return False
    if type(value).__name__ == "ndarray":
        encoder.data += b"A"
        encoder.add_all((value.dtype.str, tuple(value.shape), value.ravel().tolist()))
    else:
        encoder.add(value.item())
    return True


class NoType:
    kind = "-"


# How values of subclasses are read: by the methods of the base.
BASES: dict[type, Callable[[Encoder, Any], None]] = {
    int: lambda encoder, value: encoder.add_int(int.__int__(value)),
    float: Encoder.add_float,
    complex: Encoder.add_complex,
    str: Encoder.add_subclass_text,
    bytes: lambda encoder, value: encoder.add_bytes(bytes.__getitem__(value, slice(None))),
    bytearray: Encoder.add_bytearray,
    list: lambda encoder, value: encoder.add_list(list(list.__iter__(value))),
    tuple: lambda encoder, value: encoder.add_tuple(tuple(tuple.__iter__(value))),
    dict: lambda encoder, value: encoder.add_dict(dict(dict.items(value))),
    set: lambda encoder, value: encoder.add_set(set(set.__iter__(value))),
    frozenset: lambda encoder, value: encoder.add_frozenset(frozenset(frozenset.__iter__(value))),
}


def contents(value: Any) -> Any:
    """Return the contents of a mutable container, as ``update`` expects them."""
    if isinstance(value, bytearray):
        return bytes(value)
    return dict_parts(value) if isinstance(value, dict) else tuple(value)


def update(container: Any, parts: Any) -> None:
    """Give a mutable container new contents.

    Raises:
        CodecError: They cannot be contents of such a container.
    """
    if type(parts) is not (bytes if isinstance(container, bytearray) else tuple):
        raise CodecError("no contents")
    try:
        if isinstance(container, (list, bytearray)):
            container[:] = parts
        elif isinstance(container, dict):
            new = dict(Decoder.pairs(parts))
            container.clear()
            fill(container, new.items())
        else:
            members = set(parts) if isinstance(container, set) else parts  # or it is a deque
            container.clear()
            getattr(container, "update" if isinstance(container, set) else "extend")(members)
    except TypeError as error:
        raise CodecError(str(error)) from None


def fill(container: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    for key, value in pairs:  # ``update`` of a counter adds, that of ``dict`` loses an order
        container[key] = value


class Handles:
    """Objects of the answer that its tests know by number."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def describe(self, value: Any) -> tuple[int, int, bool]:
        """Return the kind of handle, its number, and whether the object is true."""
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        try:
            truth = bool(value)
        except BaseException:
            truth = True
        return self.kind(value), number, truth

    @staticmethod
    def kind(value: Any) -> int:
        kind = type(value)
        if hasattr(kind, "__next__"):
            return GENERATOR if kind.__name__ == "generator" else ITERATOR
        if hasattr(kind, "__await__"):
            return AWAITABLE
        if hasattr(kind, "__iter__"):
            return ITERABLE
        return FUNCTION if callable(value) else OBJECT


class Decoder:
    """Decodes one message."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data = data
        self.position = start
        self.objects: list[Any] = []
        self.depth = 0

    def value(self) -> Any:
        """Decode the next value.

        Raises:
            CodecError: There is none.
        """
        try:
            return self.next()
        except CodecError:
            raise
        except (Exception, RecursionError) as error:
            if isinstance(error, MemoryError):
                raise
            raise CodecError("%s: %s" % (type(error).__name__, repr(error)[:200])) from None

    def end(self) -> None:
        if self.position != len(self.data):
            raise CodecError("bytes after the end")

    def next(self) -> Any:
        tag = self.data[self.position]  # IndexError at the end
        self.position += 1
        return DECODERS[tag](self)  # KeyError for an unknown one

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise CodecError("cut off")
        return self.data[start : self.position]

    def count(self, size: int = 1) -> int:
        """Decode a number of items that take at least so many bytes each."""
        (count,) = COUNT.unpack(self.take(4))
        if count * size > len(self.data) - self.position:
            raise CodecError("more items than bytes")
        return int(count)

    def items(self, count: int) -> list[Any]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise CodecError("nested too deeply")
        found = [self.next() for _ in range(count)]
        self.depth -= 1
        return found

    def numbered(self, container: Any) -> Any:
        self.objects.append(container)
        return container

    def integer(self) -> int:
        return int(INT64.unpack(self.take(8))[0])

    def double(self) -> float:
        return float(DOUBLE.unpack(self.take(8))[0])

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "surrogatepass")

    def name(self) -> str:
        found = self.next()
        if type(found) is not str:
            raise CodecError("no name")
        return found

    def array(self, code: str) -> tuple[Any, ...]:
        count = self.count(8)
        return struct.unpack("<%d%s" % (count, code), self.take(8 * count))

    def array_type(self) -> str:
        return {b"q": "q", b"d": "d"}[self.take(1)]

    def number_list(self) -> list[Any]:
        found: list[Any] = self.numbered([])
        found += self.array(self.array_type())
        return found

    def read_list(self) -> list[Any]:
        found: list[Any] = self.numbered([])
        found += self.items(self.count())
        return found

    def read_dict(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self.numbered({})
        found.update(self.pairs(self.items(2 * self.count(2))))
        return found

    @staticmethod
    def pairs(parts: Any) -> Iterable[tuple[Any, Any]]:
        return zip(parts[::2], parts[1::2])

    def read_set(self) -> set[Any]:
        found: set[Any] = self.numbered(set())
        found.update(self.items(self.count()))
        return found

    def read_range(self) -> range:
        start, stop, step = self.items(3)
        return range(start, stop, step)

    def reference(self) -> Any:
        (number,) = COUNT.unpack(self.take(4))
        return self.objects[number]

    def view(self) -> Any:
        kind, values = self.items(2)
        if kind == "keys":
            return dict.fromkeys(values).keys()
        if kind == "values":
            return dict(zip(range(len(values)), values)).values()
        return dict(values).items()

    def numpy(self) -> Any:
        dtype, shape, values = self.items(3)
        if type(dtype) is not str or dtype[1:2] not in tuple("biufcSU") or type(values) is not list:
            raise CodecError("no array")
        import numpy

        return numpy.array(values, dtype=dtype).reshape(shape)

    def handle(self) -> Any:
        kind, number, truth = HANDLE.unpack(self.take(HANDLE.size))
        return self.handled(kind, number, bool(truth), self.name())

    def own_handle(self) -> Any:
        """Return an object of this process, which the other one knows by its number."""
        raise CodecError("a handle of the other side")

    def function(self) -> Any:
        raise CodecError("a function")

    def iterator(self) -> Any:
        raise CodecError("an iterator")

    def handled(self, kind: int, number: int, truth: bool, name: str) -> Any:
        raise CodecError("a handle")

    def library(self) -> Any:
        name = self.name()
        if name == "deque" or name in DICTS:
            return self.library_container(name)
        (parts,) = self.items(1)
        return BUILDERS[name](*parts)

    def library_container(self, name: str) -> Any:
        found = self.numbered(library_type(name)())
        (parts,) = self.items(1)
        if type(parts) is not tuple:
            raise CodecError("no container")
        if name == "deque":
            bounded = library_type(name)(parts[1:], parts[0])
            if parts[0] is not None:  # its bound cannot be set later
                found = self.replaced(found, bounded)
            else:
                found.extend(parts[1:])
        elif name == "defaultdict":
            found.default_factory = TYPES[parts[0]] if parts[0] in FACTORIES else None
            fill(found, self.pairs(parts[1:]))
        else:
            fill(found, self.pairs(parts))
        return found

    def replaced(self, old: object, new: Any) -> Any:
        for number, known in enumerate(self.objects):
            if known is old:
                self.objects[number] = new
        return new


def zone(offset: int | None) -> Any:
    import datetime

    if offset is None:
        return None
    return datetime.timezone(datetime.timedelta(microseconds=offset))


def datetime_of(*parts: Any) -> Any:
    import datetime

    return datetime.datetime(*parts[:7]).replace(tzinfo=zone(parts[8]), fold=parts[7])


def time_of(*parts: Any) -> Any:
    import datetime

    return datetime.time(*parts[:4]).replace(tzinfo=zone(parts[5]), fold=parts[4])


def array_of(typecode: str, values: tuple[Any, ...]) -> Any:
    return library_type("array")(typecode, list(values))


def number_of(name: str) -> Callable[..., Any]:
    def build(*parts: Any) -> Any:
        if not all(type(part) is (str if name == "Decimal" else int) for part in parts):
            raise CodecError("no number")
        return library_type(name)(*parts)

    return build


BUILDERS: dict[str, Callable[..., Any]] = {
    **{name: number_of(name) for name in ("Fraction", "Decimal", "date", "timedelta")},
    "datetime": datetime_of,
    "time": time_of,
    "array": array_of,
    **{name: lambda value, name=name: library_type(name)(value) for name in (
        "UserList", "UserDict", "UserString",
    )},
}  # fmt: skip

DECODERS: dict[int, Callable[[Any], Any]] = {
    ord(tag): method
    for tag, method in {
        "N": lambda _: None,
        "T": lambda _: True,
        "F": lambda _: False,
        "E": lambda _: ...,
        "X": lambda _: NotImplemented,
        "i": Decoder.integer,
        "I": lambda decoder: int.from_bytes(decoder.take(decoder.count()), "little", signed=True),
        "f": Decoder.double,
        "c": lambda decoder: complex(decoder.double(), decoder.double()),
        "s": Decoder.text,
        "b": lambda decoder: decoder.take(decoder.count()),
        "B": lambda decoder: decoder.numbered(bytearray(decoder.take(decoder.count()))),
        "[": Decoder.read_list,
        "l": Decoder.number_list,
        "(": lambda decoder: tuple(decoder.items(decoder.count())),
        "t": lambda decoder: decoder.array(decoder.array_type()),
        "{": Decoder.read_dict,
        "S": Decoder.read_set,
        "Z": lambda decoder: frozenset(decoder.items(decoder.count())),
        "r": Decoder.read_range,
        ":": lambda decoder: slice(*decoder.items(3)),
        "Y": lambda decoder: TYPES[decoder.name()],
        "R": Decoder.reference,
        "K": Decoder.view,
        "L": Decoder.library,
        "A": Decoder.numpy,
        "H": lambda decoder: decoder.handle(),
        "h": lambda decoder: decoder.own_handle(),
        "G": lambda decoder: decoder.function(),
        "j": lambda decoder: decoder.iterator(),
    }.items()
}
