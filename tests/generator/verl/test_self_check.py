"""Self-check of engines: what it asks, what it makes of the answers, and real random models."""

import json
import math
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.backends.verl.messages import SelfCheckFacts
from services.generator.backends.verl.self_check import (
    KNOWN_TEXT,
    ScoredTokens,
    check_self,
    compare,
)
from shared.errors import ServiceError

Answer = Callable[[dict[str, Any]], Awaitable[web.Response]]
Scores = Callable[[Sequence[int]], list[float | None]]
ROOT = Path(__file__).resolve().parents[3]
CONTEXT = 4096
FIRST = 7  # as a token that begins every text


async def serve(answer: Answer) -> TestServer:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def complete(request: web.Request) -> web.Response:
        return await answer(await request.json())

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", complete)
    app.router.add_post("/generate", complete)
    server = TestServer(app)
    await server.start_server()
    return server


class Engine:
    """Tokens are characters; ``scores`` are their log-probabilities."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores
        self.asked: list[list[int]] = []
        self.requests: list[dict[str, Any]] = []

    def _scored(self, prompt: str | list[int]) -> tuple[list[int], list[float | None]]:
        ids = [FIRST, *map(ord, prompt)] if isinstance(prompt, str) else prompt
        self.asked.append(ids)
        return ids, [None, *self.scores(ids)[1:]]

    async def vllm(self, request: dict[str, Any]) -> web.Response:
        self.requests.append(request)
        ids, values = self._scored(request["prompt"])
        logprobs = [
            None if v is None else {str(i): {"logprob": v, "rank": 3}}
            for i, v in zip(ids, values, strict=True)
        ]
        choice = {"text": "", "prompt_token_ids": ids, "prompt_logprobs": logprobs}
        return web.json_response({"choices": [choice]})

    async def sglang(self, request: dict[str, Any]) -> web.Response:
        self.requests.append(request)
        ids, values = self._scored(request.get("text", request.get("input_ids")))
        logprobs = [[v, i, None] for i, v in zip(ids, values, strict=True)]
        return web.json_response({"text": "", "meta_info": {"input_token_logprobs": logprobs}})

    async def checked(self, engine: str = "vllm", context: int = CONTEXT) -> SelfCheckFacts:
        server = await serve(getattr(self, engine))
        try:
            url = str(server.make_url("")).rstrip("/")
            return await check_self(url, engine, context)
        finally:
            await server.close()


def knows_order(ids: Sequence[int]) -> list[float | None]:
    """Likely is what follows its predecessor in the text, with an error now and then."""
    pairs = set(pairwise(KNOWN_TEXT))
    follows = [(chr(a), chr(b)) in pairs for a, b in pairwise(ids)]
    return [None, *(-0.1 if yes and n % 5 else -50.0 - n / 100 for n, yes in enumerate(follows))]


def knows_frequency(ids: Sequence[int]) -> list[float | None]:
    return [math.log(KNOWN_TEXT.count(chr(i)) + 1) - 8 for i in ids]


def favours_repetition(ids: Sequence[int]) -> list[float | None]:
    """As tied embeddings do."""
    before = [0, *ids]
    return [
        -0.01 if a == b else -20.0 - (b * 37 % 11) / 10 for a, b in zip(before, ids, strict=False)
    ]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("scores", "random"),
    [(knows_order, False), (knows_frequency, True), (favours_repetition, True)],
)
async def test_what_looks_random(engine: str, scores: Scores, random: bool) -> None:
    stand_in = Engine(scores)
    checked = await stand_in.checked(engine)
    assert checked.looks_random is random
    ordered, shuffled = stand_in.asked
    assert ordered == [FIRST, *map(ord, KNOWN_TEXT)]
    assert shuffled != ordered
    assert (shuffled[0], sorted(shuffled)) == (FIRST, sorted(ordered))
    assert checked.tokens < len(ordered)  # repeated characters do not count


async def test_the_text_fits_into_a_small_context() -> None:
    stand_in = Engine(knows_order)
    facts = await stand_in.checked(context=400)
    assert not facts.looks_random
    assert max(map(len, stand_in.asked)) + 1 <= 400


values = st.lists(st.floats(-1e4, 0), min_size=101, max_size=120)


def scored(logprobs: Sequence[float]) -> ScoredTokens:
    return ScoredTokens(range(len(logprobs) + 1), [None, *logprobs])


@settings(max_examples=10)
@given(values, values)
def test_the_preference_is_the_share_of_comparisons_won(
    one: list[float], other: list[float]
) -> None:
    facts = compare(scored(one), scored(other))
    wins = sum((a > b) + (a == b) / 2 for a in one for b in other)
    assert facts.order_preference == pytest.approx(wins / (len(one) * len(other)), abs=0.001)
    back = compare(scored(other), scored(one))
    assert facts.order_preference + back.order_preference == pytest.approx(1, abs=0.002)


NO_SCORES = [
    '{"choices": []}',
    '{"choices": [{"prompt_token_ids": null, "prompt_logprobs": null}]}',
    '{"choices": [{"prompt_token_ids": [1], "prompt_logprobs": [{}]}]}',
    "[]",
    "no",
]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_an_engine_that_does_not_say(engine: str) -> None:
    answers = [(500, ""), *((200, text) for text in NO_SCORES)]

    async def next_answer(_request: dict[str, Any]) -> web.Response:
        status, text = answers.pop()
        return web.Response(status=status, text=text, content_type="application/json")

    server = await serve(next_answer)
    while answers:
        with pytest.raises(ServiceError, match="self-check"):
            await check_self(str(server.make_url("")).rstrip("/"), engine, CONTEXT)
    await server.close()


@pytest.mark.nightly
@pytest.mark.verl
@pytest.mark.timeout(300)
def test_every_random_model_is_found_and_the_trained_one_is_not(
    verl_python: Path, tiny_model: Path
) -> None:
    done = subprocess.run(
        [verl_python, "-m", "tests.generator.verl.models", tiny_model],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) > 40
    accused = {report["name"] for report in reports if report["facts"]["looks_random"]}
    random = {report["name"] for report in reports if report["name"] != "trained"}
    assert accused == random
    # The threshold has room on both sides.
    preference = {report["name"]: report["facts"]["order_preference"] for report in reports}
    assert preference.pop("trained") > 0.7
    assert max(preference.values()) < 0.6
