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

from shared.harness.function_values.crossing import (
    AWAITABLE,
    CALLS,
    FUNCTION,
    FUNCTIONS,
    GENERATOR,
    ITERABLE,
    ITERATOR,
    MAX_DEPTH,
    SIZE,
    Classes,
    CodecError,
    UncrossableError,
    is_function,
    set_fields,
)
from shared.harness.function_values.decoder import Decoder, update
from shared.harness.function_values.encoder import Encoder, contents
from shared.harness.function_values.objects import Handles, ObjectEncoder, add_numpy

__all__ = [
    "AWAITABLE",
    "CALLS",
    "FUNCTION",
    "FUNCTIONS",
    "GENERATOR",
    "ITERABLE",
    "ITERATOR",
    "MAX_DEPTH",
    "SIZE",
    "Classes",
    "CodecError",
    "Decoder",
    "Encoder",
    "Handles",
    "ObjectEncoder",
    "UncrossableError",
    "add_numpy",
    "contents",
    "is_function",
    "set_fields",
    "update",
]
