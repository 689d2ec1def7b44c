"""Answers of a real SGLang, read by the self-check, the health check, the client and the metrics.

``answers.json`` says where they come from. The server below gives them to the recorded requests
only, so what we ask is compared, too.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.generator.backends.verl.self_check import check_self
from services.generator.protocol import Usage, find_usage
from services.generator.router.app import open_session
from services.generator.router.health import HealthCheck
from services.generator.router.metrics import count_tokens
from services.generator.settings import GeneratorSettings
from services.runner.responses import RejectedError, read_completion
from tests.generator.router.engines import FakeEngine, FakeReplica, answer

RECORD = Path(__file__).parents[2] / "fixtures" / "sglang" / "answers.json"
EXCHANGES: Sequence[dict[str, Any]] = json.loads(RECORD.read_text())["exchanges"]
CHAT = "/v1/chat/completions"
CONTEXT = 896


def recorded(path: str, **request: object) -> list[dict[str, Any]]:
    """Exchanges whose request has these members."""
    return [
        exchange
        for exchange in EXCHANGES
        if exchange["path"] == path and request.items() <= (exchange["request"] or {}).items()
    ]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        asked = await request.json() if request.can_read_body else None
        for exchange in EXCHANGES:
            if (exchange["path"], exchange["request"]) == (request.path, asked):
                return web.json_response(exchange["answer"], status=exchange["status"])
        return web.Response(status=HTTPStatus.NOT_IMPLEMENTED, text="not a recorded request")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/")
    await server.close()


async def test_the_self_check_reads_prompt_log_probabilities(url: str) -> None:
    facts = await check_self(url, "sglang", CONTEXT)
    assert facts.tokens >= 100
    assert not facts.looks_random
    assert -20 < facts.mean_logprob < 0


async def test_the_probe_gets_a_token(url: str) -> None:
    health = HealthCheck(GeneratorSettings())
    replica = FakeReplica(FakeEngine("sglang-0", answer))
    replica.url = url
    async with open_session() as health.session:
        await health.admit(replica)
    assert replica.model == "/models/tiny"
    assert replica.last_token > 0


def test_a_completion_with_its_tokens() -> None:
    exchange = recorded(CHAT, max_tokens=8)[0]
    body = json.dumps(exchange["answer"]).encode()
    completion = read_completion(exchange["status"], {}, body)
    assert completion.finish_reason == "length"
    assert completion.output_tokens == 8
    usage = find_usage(body)
    assert usage == Usage(completion.prompt_tokens or 0, 8)
    assert completion.completion


def test_a_stop_string_stays_in_the_answer() -> None:
    (exchange,) = recorded(CHAT, stop=["\n"])
    completion = read_completion(exchange["status"], {}, json.dumps(exchange["answer"]).encode())
    assert (completion.finish_reason, completion.completion[-1:]) == ("stop", "\n")


def test_prompts_that_are_too_long_for_the_context_that_we_set() -> None:
    refused = [exchange for exchange in EXCHANGES if exchange["status"] == HTTPStatus.BAD_REQUEST]
    reasons = []
    for exchange in refused:
        with pytest.raises(RejectedError) as caught:
            read_completion(exchange["status"], {}, json.dumps(exchange["answer"]).encode())
        reasons.append(str(caught.value).split(":")[0])
    # The first asks for more tokens than the context has, which is not the prompt's fault.
    assert reasons == ["http_400", "prompt_too_long", "prompt_too_long"]


def test_the_token_counters() -> None:
    (exchange,) = recorded("/metrics")
    values = re.findall(
        r"^sglang:(?:prompt|generation)_tokens_total\{.*\} (\S+)$", exchange["answer"], re.MULTILINE
    )
    assert len(values) == 2
    assert count_tokens(exchange["answer"]) == sum(map(float, values)) > 0
