"""Codec of the values between an answer and its tests: exact both ways, safe against any bytes."""

import collections
import datetime
import fractions
import json
import math
import numbers
import operator
import types
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedList, SortedSet  # type: ignore[import-untyped]

from shared.harness import forms, values


def without_fold(moment: Any) -> Any:
    return moment.replace(fold=0)  # which no comparison sees


keys = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(allow_nan=False),
    st.text(st.characters()),
    st.text(st.characters(categories=["Cs"])),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes().map(without_fold),
    st.datetimes(timezones=st.sampled_from([datetime.UTC, ZoneInfo("Asia/Tokyo")])).map(
        without_fold
    ),
    st.times().map(without_fold),
    st.timedeltas(),
    st.sampled_from([int, str, type(None), ValueError, ..., NotImplemented]),
)
keys |= st.tuples(keys, keys) | st.frozensets(keys, max_size=3)
anything = st.recursive(
    keys | st.binary().map(bytearray) | st.integers(-99, 99).map(range),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(st.integers(-(2**65), 2**65), min_size=8),
        st.lists(st.floats(allow_nan=False), min_size=8),
        st.lists(inner).map(tuple),
        st.lists(inner).map(collections.deque),
        st.dictionaries(keys, inner),
        st.dictionaries(keys, inner).map(collections.OrderedDict),
        st.dictionaries(keys, inner).map(lambda d: collections.defaultdict(list, d)),
        st.sets(keys),
        st.lists(keys).map(collections.Counter),
    ),
    max_leaves=20,
)


def encoded(value: object) -> bytes:
    return values.Encoder().message(value)


def decoded(data: bytes) -> Any:
    (value,) = values.Decoder().values(data)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, part by part of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(tuple(one.items()), tuple(other.items()))
    if isinstance(one, set | frozenset):
        kinds, others = (collections.Counter(map(type, members)) for members in (one, other))
        return one == other and kinds == others
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and repr(one) == repr(other)


@given(anything)
@example(-0.0)
@example([-0.0] * 9)
@example(math.inf)
@example(collections.OrderedDict([(2, 1), (1, 2)]))
@example(collections.deque([1, 2, 3], 2))
@example(collections.Counter(a=2, b=0, c=-1))
@example(tuple(range(20)))
def test_values_arrive_as_they_are(value: object) -> None:
    assert same(decoded(encoded(value)), value)


def test_sets_keep_their_order() -> None:
    for members in ([8, 0, 16], [0, 16, 8], ["b", "a"], [3.5, 2**61 - 1, 0]):
        assert list(decoded(encoded(set(members)))) == list(set(members))


def test_shared_parts_stay_shared() -> None:
    row = [0]
    loop: list[object] = []
    loop.append(loop)
    rows, again = decoded(encoded(([row, row], loop)))
    assert rows[0] is rows[1]
    assert again[0] is again


INSTANCES = (*forms.INSTANCES, forms.FIELDS, forms.LATER, "ndarray", "reference", "handle")
names = st.sampled_from((*forms.FORMS, *forms.MAKERS, *INSTANCES))
nodes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("eval"),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner, max_size=2),
)


@settings(max_examples=200)
@given(
    st.binary()
    | st.text('[]{}":,0123 \\ntrue', max_size=60).map(str.encode)
    | st.lists(nodes, max_size=3).map(lambda parts: json.dumps([parts, []]).encode())
)
@example(b'[[{"Fraction":[1,0]}],[]]')
@example(b'[[{"defaultdict":["eval"]}],[]]')
@example(b'[[{"datetime":[[1,2]]}],[]]')
@example(b'[[{"ndarray":["O8",[1],[1]]}],[]]')
@example(b'[[{"dict":[[],null]}],[]]')
@example(b"[" * 10_000)
@example(b'{"tuple":[' * 10_000)
@example(b"[[],[[]]]")
@example(b'[[{"reference":[0]}],[]]')
@example(b'[[{"type":["eval"]}],[]]')
@example(b'[[{"function":["eval"]}],[]]')
@example(b'[[{"handle":["object",0,true,"x"]}],[]]')
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        parts = values.Decoder().values(data)
    except forms.CodecError:
        return
    encoded(parts)


@settings(max_examples=100)
@given(anything, st.data())
def test_damaged_values_are_refused_or_other_values(value: object, data: st.DataObject) -> None:
    damaged = bytearray(encoded(value))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    try:
        decoded(bytes(damaged))
    except forms.CodecError:
        return


# What the answer returns


class Number(int):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "?"

    def encode(self, *_: str) -> bytes:
        return b"?"


class Half:
    """A number of a library, as sympy's are."""

    numerator, denominator = 1, 2


numbers.Rational.register(Half)


class Values(list[object]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        raise ValueError


def returned(value: object) -> Any:
    return decoded(values.ObjectEncoder(values.Handles()).message(value))


@pytest.mark.parametrize(
    ("value", "arrives_as"),
    [
        (Number(3), 3),
        (Text("a"), "a"),
        (Values([1, Number(2)]), [1, 2]),
        (collections.namedtuple("P", "x y")(1, 2), (1, 2)),
        (type("D", (dict,), {})(a=1), {"a": 1}),
        (type("C", (collections.Counter,), {})("a"), collections.Counter("a")),
        (type("F", (fractions.Fraction,), {})(1, 2), fractions.Fraction(1, 2)),
        ([Half()], [fractions.Fraction(1, 2)]),
        (types.MappingProxyType({"a": [1]}), {"a": [1]}),
        (collections.UserDict(a=collections.UserList([1])), {"a": [1]}),
        (collections.UserString("a"), "a"),
        (collections.ChainMap({"a": 1}, {"b": 2}), {"b": 2, "a": 1}),
        (SortedList([2, 1]), [1, 2]),
        (SortedSet("bca"), dict.fromkeys("abc").keys()),
        (memoryview(b"a"), b"a"),
    ],
)
def test_a_subclass_arrives_as_its_base(value: object, arrives_as: object) -> None:
    assert same(returned(value), arrives_as)


@pytest.mark.parametrize("value", [object(), lambda: 0, type("A", (), {}), operator, iter([])])
def test_other_objects_are_handles(value: object) -> None:
    handles = values.Handles()
    message = values.ObjectEncoder(handles).message([value, value])
    assert handles.objects == [value]
    with pytest.raises(forms.CodecError):
        decoded(message)


@pytest.mark.parametrize("value", [object(), lambda: 0, type("A", (), {}), Number(3), [Text("a")]])
def test_tests_send_exact_values_only(value: object) -> None:
    with pytest.raises(forms.UncrossableError):
        encoded(value)
