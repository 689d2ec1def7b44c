"""Lookup and format of the replay server's answers."""

import asyncio
import json
from pathlib import Path

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


async def test_keeps_the_recorded_finish_reason(replay: Replay) -> None:
    answer = await (await chat(await replay(), "d2/p%2F1/0")).json()
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_unrecorded_sample_is_404_and_named(replay: Replay) -> None:
    response = await chat(await replay(), "d1/p%2F1/7")
    assert response.status == 404
    error = (await response.json())["error"]
    assert "d1/p%2F1/7" in error["message"]
    assert set(error) == {"message", "type", "code"}


async def test_finds_the_problem_by_the_longest_prompt(replay: Replay, data: Path) -> None:
    client = await replay(replay_data=str(data))
    for question, text in [
        ("Solve: Add two numbers. In Python.", "first answer"),
        ("Solve: Add two numbers. Then print. In Python.", "of d2"),
    ]:
        messages = [
            {"role": "user", "content": "an older question"},
            {"role": "assistant", "content": "an older answer"},
            {"role": "user", "content": [{"type": "text", "text": question}]},
        ]
        answer = await (await chat(client, "", messages=messages)).json()
        assert answer["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize(
    ("question", "said"),
    [("Something nobody answered.", "d1/unrecorded/0"), ("Unheard of.", "no known prompt")],
)
async def test_prompt_without_completion_is_404(
    replay: Replay, data: Path, question: str, said: str
) -> None:
    client = await replay(replay_data=str(data))
    response = await chat(client, "", messages=[{"role": "user", "content": question}])
    assert response.status == 404
    assert said in (await response.json())["error"]["message"]


async def test_n_gives_as_many_samples_as_are_recorded(replay: Replay) -> None:
    answer = await (await chat(await replay(), n=3)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert texts == ["first answer", "second"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_token_limit_cuts_the_text(replay: Replay, name: str) -> None:
    answer = await (await chat(await replay(), "d1/long/0", **{name: 5})).json()
    assert answer["choices"][0]["message"]["content"] == "0123456789" * 2
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


async def test_stream_adds_up_to_the_answer(replay: Replay) -> None:
    client = await replay(replay_latency=0.001)
    response = await chat(client, "d1/long/0", stream=True, stream_options={"include_usage": True})
    assert response.content_type == "text/event-stream"
    events = (await response.text()).removesuffix("\n\n").split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    parts = [chunk["choices"][0] for chunk in chunks[:-1]]
    assert "".join(part["delta"].get("content", "") for part in parts) == "0123456789" * 8
    assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["stop"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 20
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_stream_without_usage_does_not_mention_it(replay: Replay) -> None:
    text = await (await chat(await replay(), stream=True)).text()
    assert "usage" not in text


@pytest.mark.parametrize("prompt", ["Add two numbers.", ["Add two numbers."]])
async def test_text_completions(replay: Replay, data: Path, prompt: object) -> None:
    client = await replay(replay_data=str(data))
    answer = await (await client.post("/v1/completions", json={"prompt": prompt})).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == "first answer"
    streamed = await client.post("/v1/completions", json={"prompt": prompt, "stream": True})
    events = [line for line in (await streamed.text()).split("\n\n") if "{" in line]
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    assert "".join(choice["text"] for choice in choices) == "first answer"


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": [{"content": "no role"}]}',
        b'{"messages": [{"role": "user", "content": "?"}], "n": 0}',
        b'{"messages": [{"role": "user", "content": "?"}], "max_tokens": 0}',
        b"[" * 100_000,
    ],
)
async def test_bad_body_is_400(replay: Replay, body: bytes) -> None:
    response = await (await replay()).post(
        "/v1/chat/completions", data=body, headers={"Content-Type": "application/json"}
    )
    assert response.status == 400
    assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_several_prompts_are_400(replay: Replay) -> None:
    response = await (await replay()).post("/v1/completions", json={"prompt": ["a", "b"]})
    assert response.status == 400


async def test_unknown_model_is_404(replay: Replay) -> None:
    response = await chat(await replay(model="m"), model="other")
    assert response.status == 404
    assert (await response.json())["error"]["code"] == "model_not_found"


async def test_models_are_listed(replay: Replay) -> None:
    answer = await (await (await replay(model="m")).get("/v1/models")).json()
    assert [model["id"] for model in answer["data"]] == ["m"]


async def test_api_key_is_asked_for(replay: Replay) -> None:
    client = await replay(api_key="s3cret\n")  # as a file has it
    assert (await chat(client)).status == 401
    assert (await client.get("/v1/models")).status == 401
    wrong = await client.get("/v1/models", headers={"Authorization": "Bearer wrong"})
    assert wrong.status == 401
    right = await client.get("/v1/models", headers={"Authorization": "Bearer s3cret"})
    assert right.status == 200
    assert (await client.get("/healthz")).status == 200


async def test_recorded_time_can_be_taken(replay: Replay) -> None:
    client = await replay(replay_time_scale=1)
    loop_time = asyncio.get_running_loop().time
    started = loop_time()
    assert (await chat(client, "x/any/0")).status == 200
    assert loop_time() - started >= 0.01


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
    assert "plumbline_generator_requests_in_flight 0.0" in text
