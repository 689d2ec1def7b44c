"""Codec of the values that cross between an answer and its tests, in two processes.

It runs in the sandbox. Standard library and Python 3.8 syntax only. A value crosses as an exact
built-in value (or one of a few of the standard library's types), so that no code of the answer
comes with it: a subclass crosses as its base. Objects of other types cross as numbers of *handles*.
Neither pickle nor marshal is used, because the decoder's input is hostile.

Mutable containers are numbered in the order in which they are met, and one that occurs again is a
reference. So results may share parts with each other, contain themselves, or be an argument.

Format: JSON, whose lists, texts and numbers are themselves. Any other value is an object with the
name of its *form* and a list of parts, as ``{"Fraction": [1, 2]}``.

The decoder's input is hostile: it never raises anything but ``CodecError``, allocates no more than
a small multiple of its input, and calls only constructors of built-in types.
"""

from __future__ import annotations

import json
import struct
import sys

from shared.harness import forms
from shared.harness.forms import PLAIN, SCALARS, Classes, CodecError, UncrossableError

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAX_DEPTH = 1500
# Of a message: its size, then its bytes. The answer's descriptors for calls and for replies.
SIZE, CALLS = struct.Struct("<Q"), (3, 4)
# Larger integers are hexadecimal: decimal ones take quadratic time.
MAX_INT = 1 << 63
# Kinds of handles.
OBJECT, ITERATOR, GENERATOR = "object", "iterator", "generator"
ITERABLE, FUNCTION, AWAITABLE = "iterable", "function", "awaitable"

# The parts of JSON in C: an answer may replace built-ins, which those in Python use.
_to_json: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_encode = _to_json(None, None, json.encoder.encode_basestring, None, ":", ",", False, False, True)
_decode = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def dumps(nodes: list[Any]) -> bytes:
    return "".join(_encode(nodes, 0)).encode("utf-8", "surrogatepass")


def loads(data: bytes) -> Any:
    """Decode JSON; anything else raises an exception of any type."""
    text = data.decode("utf-8", "surrogatepass")
    value, end = _decode(text, 0)
    if end != len(text):
        raise CodecError("bytes after the end")
    return value


class Encoder:
    """Encodes values; what cannot cross is refused with ``UncrossableError``.

    Attributes:
        objects: The mutable containers so far, by their numbers.
    """

    classes = Classes()

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.depth = 0
        self.waiting: list[Any] = []

    def message(self, *values: Any) -> bytes:
        """Encode values.

        Raises:
            UncrossableError: One cannot cross.
            RecursionError: One is nested too deeply.
        """
        nodes = self.nodes(values)
        # Encoding the fields of an instance may add further instances to the list.
        later = [self.nodes(forms.field_parts(instance)) for instance in self.waiting]
        self.waiting.clear()
        return dumps([nodes, later])

    def nodes(self, values: Iterable[Any]) -> list[Any]:
        """Return values as JSON has them."""
        values = list(values)
        kinds = set(map(type, values))
        if kinds <= PLAIN or (kinds == {int} and min(values) >= -MAX_INT and max(values) < MAX_INT):
            return values
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise RecursionError("a value that is nested too deeply")
        nodes = [self.node(value) for value in values]
        self.depth -= 1
        return nodes

    def node(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN or (kind is int and -MAX_INT <= value < MAX_INT):
            return value
        node = self.form(kind, value)
        return self.other(value) if node is None else node

    def form(self, kind: type, value: Any) -> Any:
        """Return a value as one of a type; None if that has no form."""
        name = forms.form_name(kind)
        if name is None:
            return {kind.__name__: self.nodes(value)} if kind in forms.VIEWS else None
        reference = self.reference(value) if name in forms.MUTABLE else None
        if reference is not None:
            return reference
        nodes = self.nodes(forms.FORMS[name](value))
        return nodes if name == "list" else {name: nodes}

    def reference(self, container: object) -> Any:
        """Return a reference to a container that was met before; else None, and number it."""
        number = self.numbers.get(id(container))
        if number is not None:
            return {"reference": [number]}
        self.register(container)
        return None

    def register(self, container: object) -> None:
        """Number a container."""
        self.numbers[id(container)] = len(self.objects)
        self.objects.append(container)  # keeps it alive, and so its id its own

    def other(self, value: Any) -> Any:
        """Return a value of a type that has no form."""
        return self.named(value) or self.instance(value) or self.refuse(value)

    def refuse(self, value: object) -> Any:
        raise UncrossableError("a value of type %s" % type(value).__name__)

    def named(self, value: Any) -> Any:
        """Return a type or constant; None if it is neither."""
        if not isinstance(value, type) and value is not ... and value is not NotImplemented:
            return None
        name = value.__name__ if isinstance(value, type) else repr(value)
        return {"type": [name]} if forms.TYPES.get(name) is value else self.refuse(value)

    def instance(self, value: Any) -> Any:
        """Return an instance of a shared class; None if the value has another class."""
        name = self.classes.name_of(type(value))
        if name is None:
            return None
        if id(value) in self.numbers:
            return self.reference(value)
        parts: Any
        if isinstance(value, BaseException):
            form, parts = (
                forms.EXCEPTION,
                (tuple(value.args), forms.field_parts(value)),
            )
        elif isinstance(value, tuple):
            form, parts = forms.NAMED_TUPLE, tuple.__iter__(value)
        elif hasattr(type(value), "__members__"):
            form, parts = forms.MEMBER, (value.name,)
        elif isinstance(value, CONTAINERS):
            return None  # it crosses as its base
        else:
            self.register(value)
            if self.depth > forms.LATER_DEPTH:
                form, parts = forms.LATER, ()
                self.waiting.append(value)
            else:
                form, parts = forms.FIELDS, forms.field_parts(value)
        return {form: [name, *self.nodes(parts)]}

    def numpy(self, value: Any) -> Any:
        """Return a scalar as the number that it is, an array with its type and shape."""
        kind = getattr(getattr(value, "dtype", None), "kind", "-")
        if type(value).__module__ != "numpy" or kind not in "biufcSU":
            return None
        if value.dtype.itemsize > (16 if kind == "c" else 8) and kind in "fc":
            value = value.astype("c16" if kind == "c" else "f8")  # of a longdouble
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.ndarray):
            return self.node(value.item())
        value = numpy.asarray(value)  # of a matrix
        return self.reference(value) or {
            "ndarray": [value.dtype.str, list(value.shape), self.nodes(value.ravel().tolist())]
        }


CONTAINERS = (bytearray, bytes, complex, dict, float, frozenset, int, list, set, str)


class Handles:
    """Objects of the answer that its tests know by number."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def describe(self, value: Any) -> tuple[str, int, bool]:
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
    def kind(value: Any) -> str:
        kind = type(value)
        if hasattr(kind, "__next__"):
            return GENERATOR if kind.__name__ == "generator" else ITERATOR
        if hasattr(kind, "__await__"):
            return AWAITABLE
        if hasattr(kind, "__iter__"):
            return ITERABLE
        return FUNCTION if callable(value) else OBJECT


class ObjectEncoder(Encoder):
    """Encodes results of the answer: subclasses as their bases, other objects as handles."""

    def __init__(self, handles: Handles, classes: Classes | None = None) -> None:
        super().__init__()
        self.handles = handles
        self.classes = classes or self.classes

    def other(self, value: Any) -> Any:
        node = self.named(value) or self.instance(value)
        if node is not None:
            return node
        for base in type(value).__mro__:
            if base in forms.AS_PLAIN:
                return self.node(forms.AS_PLAIN[base](value))
            node = self.form(base, value)
            if node is not None:
                return node
        plain = forms.plain_number(value)
        if plain is None:
            plain = forms.plain_container(value)
        node = self.numpy(value) if plain is None else self.node(plain)
        return self.refuse(value) if node is None else node

    def refuse(self, value: object) -> Any:
        return {"handle": [*self.handles.describe(value), str(type(value).__name__)[:100]]}


class Decoder:
    """Decodes a message; ``objects`` are the containers that have numbers already."""

    classes = Classes()

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        self.objects = list(objects)
        self.depth = 0
        self.waiting: list[Any] = []

    def values(self, message: bytes) -> list[Any]:
        """Decode the values of a message.

        Raises:
            CodecError: It is no message.
        """
        try:
            nodes, later = loads(message)
            values = self.parts(nodes)
            for instance, fields in zip(self.waiting, later):  # the first list grows
                forms.set_fields(instance, tuple(self.parts(fields)))
            if len(self.waiting) != len(later):
                raise CodecError("other instances")
            return values
        except (CodecError, MemoryError):
            raise
        except Exception as error:
            raise CodecError("%s: %s" % (type(error).__name__, repr(error)[:200])) from None

    def parts(self, nodes: Any) -> list[Any]:
        if type(nodes) is not list:
            raise CodecError("no parts")
        if SCALARS.issuperset(map(type, nodes)):
            return nodes
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise CodecError("nested too deeply")
        values = [self.value(node) for node in nodes]
        self.depth -= 1
        return values

    def value(self, node: Any) -> Any:
        if type(node) is list:
            values = self.numbered([])
            values += self.parts(node)
            return values
        if type(node) is not dict:
            return node
        ((form, nodes),) = node.items()
        if form in forms.MUTABLE or form == "ndarray":
            return self.container(form, nodes)
        if form in (forms.FIELDS, forms.LATER):
            return self.instance(form, nodes[0], nodes[1:])
        parts = self.parts(nodes)
        if form == "reference":
            return self.objects[parts[0]]
        if form in forms.INSTANCES:
            return forms.instance(form, self.classes.of(parts[0]), parts[1:])
        if form in forms.FORMS or form in forms.MAKERS:
            return forms.made(form, parts)
        return self.handled(form, parts)

    def numbered(self, container: Any) -> Any:
        self.objects.append(container)
        return container

    def container(self, name: str, nodes: Any) -> Any:
        late = name in ("array", "ndarray")  # it is made after its contents
        place = len(self.objects)
        container = self.numbered(None if late else forms.form_type(name)())
        if name == "ndarray":
            dtype, shape, items = nodes
            container = self.numpy(dtype, shape, self.parts(items))
        else:
            container = forms.filled(name, container, tuple(self.parts(nodes)))
        self.objects[place] = container
        return container

    def numpy(self, dtype: Any, shape: Any, items: list[Any]) -> Any:
        if type(dtype) is not str or dtype[1:2] not in tuple("biufcSU"):
            raise CodecError("no array")
        import numpy

        return numpy.array(items, dtype=dtype).reshape(shape)

    def instance(self, form: str, name: Any, nodes: Any) -> Any:
        """Return an instance of a class that both sides have; no code of it runs."""
        value = self.numbered(object.__new__(self.classes.of(name)))
        if form == forms.LATER:
            self.waiting.append(value)
        else:
            forms.set_fields(value, tuple(self.parts(nodes)))
        return value

    def handled(self, form: str, parts: list[Any]) -> Any:
        """Return what a handle is, or what tests alone send."""
        raise CodecError("no form %s" % form)
