"""Lookup and format of the replay server's answers."""

import pytest

from tests.generator.conftest import Replay, chat


async def test_answers_the_sample_that_the_request_id_names(replay: Replay) -> None:
    response = await chat(await replay(), "d1/p%2F1/0", model="replay")
    answer = await response.json()
    assert response.status == 200
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "first answer"},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}


@pytest.mark.parametrize(
    ("sample", "text"),
    [("d1/p%2F1/1", "second"), ("d2/p%2F1/0", "of d2"), ("whatever/any/0", "for any data set")],
)
async def test_tells_samples_apart(replay: Replay, sample: str, text: str) -> None:
    answer = await (await chat(await replay(), sample)).json()
    assert answer["choices"][0]["message"]["content"] == text


async def test_unrecorded_sample_is_404_and_named(replay: Replay) -> None:
    response = await chat(await replay(), "d1/p%2F1/7")
    assert response.status == 404
    error = (await response.json())["error"]
    assert "d1/p%2F1/7" in error["message"]
    assert set(error) == {"message", "type", "code"}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_token_limit_cuts_the_text(replay: Replay, name: str) -> None:
    answer = await (await chat(await replay(), "d1/long/0", **{name: 5})).json()
    assert answer["choices"][0]["message"]["content"] == "0123456789" * 2
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


async def test_health_and_metrics(replay: Replay) -> None:
    client = await replay()
    statuses = [(await chat(client, sample)).status for sample in ("d1/p%2F1/0", "d1/none/0")]
    assert statuses == [200, 404]
    assert (await client.get("/healthz")).status == 200
    assert (await (await client.get("/readyz")).json())["completions"] == 5
    text = await (await client.get("/metrics")).text()
    for outcome in ("http_404", "answered"):
        assert f'plumbline_generator_requests_total{{outcome="{outcome}"}} 1.0' in text
    assert 'plumbline_generator_tokens_total{kind="completion"} 4.0' in text
    assert 'plumbline_generator_requests_in_flight{replica="recorded"} 0.0' in text
