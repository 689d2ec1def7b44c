import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from shared.foreign_json import (
    MAX_DEPTH,
    MAX_ERRORS,
    JsonError,
    decode_json,
    first_errors,
    has_many_values,
)

TEXTS = st.text(st.sampled_from('",[]{}\\: a\né\ud800😀'), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


def values(document: object) -> int:
    """Members of all arrays and objects."""
    if isinstance(document, dict):
        return len(document) + sum(map(values, document.values()))
    return len(document) + sum(map(values, document)) if isinstance(document, list) else 0


@given(JSON)
def test_decodes_as_the_standard_library_does(document: object):
    assert decode_json(json.dumps(document, ensure_ascii=False)) == document
    assert decode_json(json.dumps(document).encode()) == document


@given(JSON)
def test_values_are_counted_outside_of_strings(document: object):
    data = json.dumps(document).encode()
    count = values(document)
    assert not has_many_values(data, 2 * count + 1)
    assert has_many_values(data, count - 2)


@pytest.mark.parametrize("padding", range(6))
def test_no_escape_sequence_is_cut(padding: int):
    """Wherever a piece ends, a quote in a string stays one, and the string's end its end."""
    quotes = '"' * 200_000 + "\\" * 200_001 + "x" * padding
    document = [quotes, *[","] * 50, quotes]
    data = (" " * padding + json.dumps(document)).encode()
    assert not has_many_values(data, 60)
    assert has_many_values(data, 50)


@given(st.binary(max_size=50))
def test_anything_else_is_an_error(data: bytes):
    try:
        decode_json(data)
    except JsonError as error:
        assert len(str(error)) < 200


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_bounded(opening: str):
    closing = "]" if opening == "[" else "}"
    deepest = opening * (MAX_DEPTH - 1) + "1" + closing * (MAX_DEPTH - 1)
    assert decode_json(deepest) is not None
    for depth in (MAX_DEPTH + 2, 900, 100_000):
        for inner in ("1", r'"\ud800"'):  # which only the standard library decodes
            with pytest.raises(JsonError, match="nested too deeply"):
                decode_json(opening * depth + inner + closing * depth)


def test_numbers_that_are_not_json():
    assert decode_json('["\\ud800", Infinity]') == ["\ud800", math.inf]
    for name in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(JsonError, match="not a number"):
            decode_json(f'{{"a": {name}}}', finite=True)
    with pytest.raises(JsonError, match="digits"):
        decode_json("9" * 5000)


class _Model(BaseModel):
    numbers: dict[str, int]


def test_first_errors_are_few_and_short():
    with pytest.raises(ValidationError) as error:
        _Model.model_validate({"numbers": {f"{i}" + "x" * 10_000: "y" * 10_000 for i in range(99)}})
    details = first_errors(error.value)
    assert len(details) == MAX_ERRORS
    assert len(json.dumps(details)) < 2000
    assert "y" not in details[0]["msg"]
    assert details[0]["loc"][0] == "numbers"
