"""Decoder of values, whose input is hostile (see ``value_encoder`` for the format).

It runs in the sandbox. Standard library and Python 3.8 syntax only. It never raises anything but
``CodecError``, allocates no more than a small multiple of its input, and calls only constructors of
built-in types.
"""

from __future__ import annotations

import struct

from shared.harness.value_encoder import (
    ARGUMENTS,
    COUNT,
    DOUBLE,
    FACTORIES,
    FIELDS,
    FIELDS_TUPLE,
    HANDLE,
    INT64,
    LATER,
    MAX_DEPTH,
    MEMBER,
    MUTABLE,
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
            value = self.next()
            for instance in self.waiting:  # which grows
                set_fields(instance, self.parts())
            self.waiting.clear()
            return value
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
        items = [self.next() for _ in range(count)]
        self.depth -= 1
        return items

    def numbered(self, container: Any) -> Any:
        self.objects.append(container)
        return container

    def integer(self) -> int:
        return int(INT64.unpack(self.take(8))[0])

    def double(self) -> float:
        return float(DOUBLE.unpack(self.take(8))[0])

    def data_bytes(self) -> bytes:
        return self.take(self.count())

    def text(self) -> str:
        return self.data_bytes().decode("utf-8", "surrogatepass")

    def name(self) -> str:
        name = self.next()
        if type(name) is not str:
            raise CodecError("no name")
        return name

    def array(self) -> tuple[Any, ...]:
        code = {b"q": "q", b"d": "d"}[self.take(1)]
        count = self.count(8)
        return struct.unpack("<%d%s" % (count, code), self.take(8 * count))

    def read_list(self) -> list[Any]:
        container: list[Any] = self.numbered([])
        container += self.items(self.count())
        return container

    def read_dict(self) -> dict[Any, Any]:
        container: dict[Any, Any] = self.numbered({})
        container.update(pairs(self.items(2 * self.count(2))))
        return container

    def read_set(self) -> set[Any]:
        container: set[Any] = self.numbered(set())
        container.update(self.items(self.count()))
        return container

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
        place = len(self.objects)
        self.numbered(None)  # it is made after its contents
        dtype, shape, values = self.items(3)
        known = type(dtype) is str and dtype[1:2] in tuple("biufcSU")
        if not known or type(values) is not tuple:
            raise CodecError("no array")
        import numpy

        array = self.made(numpy.array(values, dtype=dtype).reshape(shape))
        self.objects[place] = array
        return array

    def made(self, array: Any) -> Any:
        """The array to use in place of a decoded one."""
        return array

    def instance(self) -> Any:
        """Return an instance of a class that both sides have; no code of it runs."""
        name, form = self.name(), self.name()
        kind = self.classes.find(name)
        if kind is None:
            raise CodecError("no class %s" % name)
        if form == FIELDS:
            value = self.numbered(object.__new__(kind))
            set_fields(value, self.parts())
        elif form == LATER:
            value = self.numbered(object.__new__(kind))
            self.parts()
            self.waiting.append(value)
        elif form == MEMBER:
            value = kind.__members__[self.name()]
        elif form == FIELDS_TUPLE:
            value = tuple.__new__(kind, self.parts())
            if len(value) != len(kind._fields):
                raise CodecError("no fields")
        elif form == ARGUMENTS and issubclass(kind, BaseException):
            value = kind.__new__(kind)
            value.args, fields = self.parts()
            set_fields(value, fields)
        else:
            raise CodecError("no form")
        return value

    def parts(self) -> tuple[Any, ...]:
        parts = self.next()
        if type(parts) is not tuple:
            raise CodecError("no parts")
        return parts

    def handle(self) -> Any:
        kind, number, truth = HANDLE.unpack(self.take(HANDLE.size))
        return self.handled(kind, number, bool(truth), self.name())

    def handled(self, kind: int, number: int, truth: bool, name: str) -> Any:
        raise CodecError("a handle")

    def argument(self) -> Any:
        """Return what tests alone send: a handle, a built-in function, an iterator."""
        raise CodecError("an argument")

    own_handle = function = iterator = argument

    def library(self) -> Any:
        name = self.name()
        if name in MUTABLE:
            return self.library_container(name)
        (parts,) = self.items(1)
        zone = None
        if name in ("datetime", "time"):
            *parts, offset = parts
            zone = zone_of(offset)
        if not all(type(part) is (str if name == "Decimal" else int) for part in parts):
            raise CodecError("no number")
        return library_type(name)(*parts, **({"tzinfo": zone} if zone else {}))

    def library_container(self, name: str) -> Any:
        place, kind = len(self.objects), library_type(name)
        container = self.numbered(None if name == "array" else kind())
        (parts,) = self.items(1)
        if type(parts) is not tuple:
            raise CodecError("no container")
        if name == "array":
            code, values = parts
            container = self.objects[place] = kind(code, list(values))
        elif name == "deque":
            if parts[0] is not None:  # its bound cannot be set later
                container = self.objects[place] = kind((), parts[0])
            container.extend(parts[1:])
        elif name == "defaultdict":
            container.default_factory = TYPES[parts[0]] if parts[0] in FACTORIES else None
            fill(container, pairs(parts[1:]))
        else:
            fill(container, pairs(parts))
        return container


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
            new = dict(pairs(parts))
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


def zone_of(offset: int | None) -> Any:
    """Return the time zone with an offset from UTC in microseconds."""
    import datetime

    if offset is None:
        return None
    return datetime.timezone(datetime.timedelta(microseconds=offset))


def pairs(parts: Any) -> Iterable[tuple[Any, Any]]:
    return zip(parts[::2], parts[1::2])


def fill(container: dict[Any, Any], items: Iterable[tuple[Any, Any]]) -> None:
    for key, value in items:  # ``update`` of a counter adds, that of ``dict`` loses an order
        container[key] = value


DECODERS: dict[int, Callable[[Any], Any]] = {
    ord(tag): method
    for tag, method in {
        "N": lambda _: None,
        "T": lambda _: True,
        "F": lambda _: False,
        "E": lambda _: ...,
        "X": lambda _: NotImplemented,
        "i": Decoder.integer,
        "I": lambda decoder: int.from_bytes(decoder.data_bytes(), "little", signed=True),
        "f": Decoder.double,
        "c": lambda decoder: complex(decoder.double(), decoder.double()),
        "s": Decoder.text,
        "b": Decoder.data_bytes,
        "B": lambda decoder: decoder.numbered(bytearray(decoder.data_bytes())),
        "[": Decoder.read_list,
        "l": lambda decoder: decoder.numbered(list(decoder.array())),
        "(": lambda decoder: tuple(decoder.items(decoder.count())),
        "t": Decoder.array,
        "{": Decoder.read_dict,
        "S": Decoder.read_set,
        "Z": lambda decoder: frozenset(decoder.items(decoder.count())),
        "r": lambda decoder: range(*decoder.items(3)),
        ":": lambda decoder: slice(*decoder.items(3)),
        "Y": lambda decoder: TYPES[decoder.name()],
        "R": Decoder.reference,
        "K": Decoder.view,
        "L": Decoder.library,
        "A": Decoder.numpy,
        "O": Decoder.instance,
        "H": Decoder.handle,
        # Bound late: an answer's decoder has others.
        "h": lambda decoder: decoder.own_handle(),
        "G": lambda decoder: decoder.function(),
        "j": lambda decoder: decoder.iterator(),
    }.items()
}
