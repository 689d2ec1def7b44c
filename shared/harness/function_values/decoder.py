"""Decoder of values, whose input is hostile.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import struct

# Bound before the answer runs, because it may replace them.
from builtins import (
    AttributeError,
    BaseException,
    Exception,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    bool,
    bytearray,
    bytes,
    complex,
    dict,
    float,
    frozenset,
    hasattr,
    int,
    isinstance,
    issubclass,
    len,
    list,
    object,
    range,
    repr,
    set,
    slice,
    str,
    tuple,
    type,
    zip,
)

from shared.harness.function_values.crossing import (
    ARGUMENTS,
    COUNT,
    DICTS,
    DOUBLE,
    FACTORIES,
    FIELDS,
    FIELDS_TUPLE,
    HANDLE,
    INT64,
    LATER,
    MAX_DEPTH,
    MEMBER,
    TYPES,
    Classes,
    CodecError,
    library_type,
    set_fields,
)

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class Decoder:
    """Decodes one message."""

    classes = Classes()

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data = data
        self.position = start
        self.objects: list[Any] = []
        self.depth = 0
        self.waiting: list[Any] = []

    def value(self) -> Any:
        """Decode the next value.

        Raises:
            CodecError: There is none.
        """
        try:
            found = self.next()
            for instance in self.waiting:  # which grows
                set_fields(instance, self.parts())
            self.waiting.clear()
            return found
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
        place = self.reserve()
        dtype, shape, values = self.items(3)
        known = type(dtype) is str and dtype[1:2] in tuple("biufcSU")
        if not known or type(values) is not tuple:
            raise CodecError("no array")
        import numpy

        found = numpy.array(values, dtype=dtype).reshape(shape)
        self.objects[place] = found = self.made(found)
        return found

    def made(self, array: Any) -> Any:
        """The array to use in place of a decoded one."""
        return array

    def reserve(self) -> int:
        """Return the number of a container that is made after its contents."""
        self.objects.append(None)
        return len(self.objects) - 1

    def instance(self) -> Any:
        """Return an instance of a class that both sides have; no code of it runs."""
        name, form = self.name(), self.name()
        kind = self.classes.find(name)
        if kind is None:
            raise CodecError("no class %s" % name)
        if form == FIELDS:
            found = self.numbered(object.__new__(kind))
            set_fields(found, self.parts())
        elif form == LATER:
            found = self.numbered(object.__new__(kind))
            self.parts()
            self.waiting.append(found)
        elif form == MEMBER:
            found = kind.__members__[self.name()]
        elif form == FIELDS_TUPLE:
            found = tuple.__new__(kind, self.parts())
            if len(found) != len(kind._fields):
                raise CodecError("no fields")
        elif form == ARGUMENTS and issubclass(kind, BaseException):
            found = kind.__new__(kind)
            found.args, fields = self.parts()
            set_fields(found, fields)
        else:
            raise CodecError("no form")
        return found

    def parts(self) -> tuple[Any, ...]:
        found = self.next()
        if type(found) is not tuple:
            raise CodecError("no parts")
        return found

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
        if name == "array":
            place = self.reserve()
            ((code, values),) = self.items(1)
            found = self.objects[place] = library_type(name)(code, list(values))
            return found
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
        elif hasattr(container, "ravel"):
            import numpy

            container[...] = numpy.array(parts, container.dtype).reshape(container.shape)
        elif hasattr(container, "typecode"):
            container[:] = type(container)(container.typecode, list(parts))
        elif isinstance(container, dict):
            new = dict(Decoder.pairs(parts))
            container.clear()
            fill(container, new.items())
        elif isinstance(container, set):
            members = set(parts)
            container.clear()
            container.update(members)
        elif hasattr(container, "maxlen"):
            container.clear()
            container.extend(parts)
        else:
            set_fields(container, tuple(parts))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CodecError(str(error)) from None


def fill(container: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    for key, value in pairs:  # ``update`` of a counter adds, that of ``dict`` loses an order
        container[key] = value


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
        "O": Decoder.instance,
        "H": lambda decoder: decoder.handle(),
        "h": lambda decoder: decoder.own_handle(),
        "G": lambda decoder: decoder.function(),
        "j": lambda decoder: decoder.iterator(),
    }.items()
}
