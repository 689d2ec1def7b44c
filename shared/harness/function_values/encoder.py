"""Encoder of values.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import struct

# Bound before the answer runs, because it may replace them.
from builtins import (
    RecursionError,
    bool,
    bytearray,
    bytes,
    complex,
    dict,
    float,
    frozenset,
    getattr,
    id,
    int,
    isinstance,
    len,
    list,
    map,
    range,
    set,
    slice,
    str,
    tuple,
    type,
)

from shared.harness.function_values.crossing import (
    ARGUMENTS,
    COUNT,
    DICTS,
    DOUBLE,
    FACTORIES,
    FIELDS,
    FIELDS_TUPLE,
    INT64,
    LATER,
    LATER_DEPTH,
    MAX_COUNT,
    MAX_DEPTH,
    MAX_INT64,
    MEMBER,
    MIN_ARRAY,
    TYPES,
    VIEWS,
    Classes,
    UncrossableError,
    fields_of,
    library_name,
)

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class Encoder:
    """Encodes one message; what cannot cross is refused with ``UncrossableError``.

    Attributes:
        data: The bytes so far.
        objects: The mutable containers so far, by their numbers.
    """

    classes = Classes()

    def __init__(self) -> None:
        self.data = bytearray()
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.depth = 0
        self.waiting: list[Any] = []

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
        if self.waiting and not self.depth:
            for instance in self.waiting:  # which grows
                self.add_all([self.field_parts(instance)])
            self.waiting.clear()

    @staticmethod
    def field_parts(value: Any) -> tuple[Any, ...]:
        return tuple(part for pair in fields_of(value).items() for part in pair)

    def add_other(self, value: Any) -> None:
        if isinstance(value, type):
            self.add_type(value)
        elif not self.add_library(type(value), value) and not self.add_instance(value):
            self.refuse(value)

    def add_instance(self, value: Any) -> bool:
        """Encode an instance of a class that both sides have; returns whether it is one."""
        name = self.classes.name_of(type(value))
        if name is None:
            return False
        if self.add_reference(value):
            return True
        parts: Any
        if isinstance(value, BaseException):
            form, parts = ARGUMENTS, (tuple(value.args), self.field_parts(value))
        elif isinstance(value, tuple):
            form, parts = FIELDS_TUPLE, tuple(tuple.__iter__(value))
        elif hasattr(type(value), "__members__"):
            form, parts = MEMBER, value.name
        elif isinstance(value, CONTAINERS):
            return False  # it crosses as its base
        else:
            self.register(value)
            if self.depth > LATER_DEPTH:
                form, parts = LATER, ()
                self.waiting.append(value)
            else:
                form, parts = FIELDS, self.field_parts(value)
        self.data += b"O"
        self.add_all((name, form, parts))
        return True

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
        mutable = name in ("deque", "array") or name in DICTS
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


def contents(value: Any) -> Any:
    """Return the contents of a mutable container, as ``update`` expects them."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return dict_parts(value)
    if hasattr(value, "tolist"):
        return tuple(value.ravel().tolist() if hasattr(value, "ravel") else value.tolist())
    if isinstance(value, (list, set)) or library_name(type(value)):
        return tuple(value)
    return tuple(part for pair in fields_of(value).items() for part in pair)


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
CONTAINERS = (bytearray, bytes, complex, dict, float, frozenset, int, list, set, str)
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
