"""Parsing of requests and responses, as functions of their bytes."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.generator.router.requests import parse_routed_request
from services.generator.router.responses import Usage, find_usage, is_aborted_body
from tests.generator.router.engines import DONE, USAGE, event

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


def work(**document: Any) -> tuple[int, int]:
    routed = parse_routed_request(PATH, json.dumps(document).encode(), 100)
    return routed.prompt_tokens, routed.output_tokens


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"messages": [{"content": "x" * 40}, {"content": "x" * 40}]}, (21, 100)),
        ({"messages": [{"content": [{"text": "x" * 40}, {"image_url": {}}]}]}, (11, 100)),
        ({"prompt": "x" * 40, "max_tokens": 7}, (11, 7)),
        ({"prompt": ["x" * 40, "x" * 80], "max_tokens": 7}, (32, 14)),
        ({"prompt": [1, 2, 3], "max_tokens": 7}, (3, 7)),
        ({"prompt": [[1, 2, 3], [4]], "max_tokens": 7}, (4, 14)),
        ({"prompt": "", "n": 4, "max_tokens": 7, "max_completion_tokens": 5}, (1, 20)),
        ({"max_tokens": 10**30, "n": 10**30}, (1, 1024 * 10**6)),
        ({"max_tokens": "7", "n": "x"}, (1, 100)),
        ({}, (1, 100)),
    ],
)
def test_work_of_a_request(document: dict[str, Any], expected: tuple[int, int]) -> None:
    assert work(**document) == expected


@settings(max_examples=40)
@given(st.dictionaries(st.text(), json_values), st.text(), st.text(), st.booleans())
@example({"tools": [{"model": "a"}]}, "a", "b", False)
@example({"content": '"model": "a"'}, "a", 'b"\\', False)
def test_only_the_model_is_replaced(
    document: dict[str, Any], served: str, engines: str, spaced: bool
) -> None:
    document = {**document, "model": served}
    body = json.dumps(document, indent=2 if spaced else None, ensure_ascii=False)
    routed = parse_routed_request(PATH, body.encode("utf-8", "surrogatepass"), 100)
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
    assert parse_routed_request(PATH, body, 100).body_for("/m") == expected


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


@pytest.mark.parametrize("body", [b"", b"{}", b'{"usage": null}', b'{"a": "usage"}'])
def test_no_usage(body: bytes) -> None:
    assert find_usage(body) is None


def test_usage_before_other_things_of_that_name() -> None:
    body = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "tokens": ["usage"]}'
    assert find_usage(body) == Usage(3, 2)


def test_usage_of_a_stream_is_the_last() -> None:
    early = USAGE.replace(b'completion_tokens": 2', b'completion_tokens": 1')
    assert find_usage(early + event("x") + USAGE + DONE) == Usage(3, 2)
