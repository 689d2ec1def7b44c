"""Encoder of an answer's results, whose objects may be of any type.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import sys

# Bound before the answer runs, because it may replace them.
from builtins import (
    BaseException,
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
    set,
    slice,
    str,
    tuple,
    type,
)

from shared.harness.function_values.crossing import (
    AWAITABLE,
    FUNCTION,
    GENERATOR,
    HANDLE,
    ITERABLE,
    ITERATOR,
    OBJECT,
    Classes,
)
from shared.harness.function_values.encoder import Encoder

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


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


class ObjectEncoder(Encoder):
    """Encodes results of the answer: subclasses as their bases, other objects as handles."""

    def __init__(self, handles: Handles, classes: Classes | None = None) -> None:
        super().__init__()
        self.handles = handles
        self.classes = classes or self.classes

    def add_other(self, value: Any) -> None:
        if isinstance(value, type):
            self.add_type(value)
            return
        if self.add_instance(value):
            return
        for base in type(value).__mro__:
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
    if value.dtype.itemsize > (16 if value.dtype.kind == "c" else 8) and value.dtype.kind in "fc":
        value = value.astype("c16" if value.dtype.kind == "c" else "f8")  # of a longdouble
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        value = numpy.asarray(value)  # of a matrix
        if not encoder.add_reference(value):
            encoder.register(value)
            encoder.data += b"A"
            encoder.add_all((value.dtype.str, tuple(value.shape), tuple(value.ravel().tolist())))
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
