import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from shared.foreign_json import (
    MAX_ERRORS,
    JsonError,
    decode_json,
    first_errors,
)

TEXTS = st.text(st.sampled_from('",[]{}\\: a\né\ud800😀'), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


@given(JSON)
def test_decodes_as_the_standard_library_does(document: object):
    assert decode_json(json.dumps(document, ensure_ascii=False)) == document
    assert decode_json(json.dumps(document).encode()) == document


@given(st.binary(max_size=50))
def test_anything_else_is_an_error(data: bytes):
    try:
        decode_json(data)
    except JsonError as error:
        assert len(str(error)) < 200


@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")])
def test_depth_is_bounded(opening: str, closing: str):
    assert decode_json(opening * 199 + "1" + closing * 199) is not None
    for depth in (202, 900, 100_000):
        with pytest.raises(JsonError, match="nested too deeply"):
            decode_json(opening * depth + "1" + closing * depth)


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
