"""Parsing of requests and responses, as functions of their bytes."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.generator.router.requests import parse_routed_request
from services.generator.router.responses import Usage, find_usage, is_aborted_body

PATH = "/v1/chat/completions"
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("model"), inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), json_values), st.text(), st.text(), st.booleans())
@example({"tools": [{"model": "a"}]}, "a", "b", False)
@example({"content": '"model": "a"'}, "a", 'b"\\', False)
def test_only_the_model_is_replaced(
    document: dict[str, Any], served: str, engines: str, spaced: bool
) -> None:
    document = {**document, "model": served}
    body = json.dumps(document, indent=2 if spaced else None, ensure_ascii=False)
    routed = parse_routed_request(PATH, body.encode("utf-8", "surrogatepass"))
    assert json.loads(routed.body_for(engines)) == {**document, "model": engines}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model" :"a", "x":1.50}', b'{"model" :"/m", "x":1.50}'),
        (b'{"x":1.50}', b'{"x":1.50}'),
        (b'{"model": null,  "x":1}', b'{"model": null,  "x":1}'),
        (b'{"model": "/m" ,"x":1}', b'{"model": "/m" ,"x":1}'),
        (b'{"mod\\u0065l": "a"}', b'{"model": "/m"}'),
        (b'{"a": {"model": "a"}, "model": "a"}', b'{"a": {"model": "a"}, "model": "/m"}'),
    ],
)
def test_the_rest_of_a_body_stays_as_it_was(body: bytes, expected: bytes) -> None:
    assert parse_routed_request(PATH, body).body_for("/m") == expected


def choices(*reasons: object) -> bytes:
    return json.dumps({"choices": [{"finish_reason": reason} for reason in reasons]}).encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (choices("abort"), True),
        (choices("stop", "abort"), True),
        (choices("stop", None), False),
        (b'{"choices": [{"finish_reason":\n"abort"}]}', True),
        (b'{"choices": [{"text": "abort", "finish_reason": "stop"}]}', False),
        (b'{"finish_reason": "abort", "choices": ["abort"]}', False),
        (b'"abort"', False),
        (b'{"choices": "abort"}', False),
        (b'<html>"abort"', False),
    ],
)
def test_aborted(body: bytes, expected: bool) -> None:
    assert is_aborted_body(body) is expected


@given(json_values, st.integers(0, 10**6), st.integers(0, 10**6))
@example({"usage": {}}, 1, 2)
@example({"text": '"usage": {"prompt_tokens": 9}'}, 1, 2)
@example(["usage", {"decoded_token": "usage"}], 1, 2)
def test_usage_of_an_answer(said: Any, prompt: int, completion: int) -> None:
    usage = {"prompt_tokens": prompt, "total_tokens": 0, "completion_tokens": completion}
    body = json.dumps({"choices": said, "usage": usage, "prompt_logprobs": None}).encode()
    assert find_usage(body) == Usage(prompt, completion)
