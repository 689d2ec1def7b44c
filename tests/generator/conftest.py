import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from services.generator.backends.replay import build_app
from services.generator.settings import GeneratorSettings

RECORDED = [
    {"dataset": "d1", "problem_id": "p/1", "completion": "first answer", "output_tokens": 4},
    {"dataset": "d1", "problem_id": "p/1", "completion": "second", "sample_index": 1},
    {"dataset": "d2", "problem_id": "p/1", "completion": "of d2", "finish_reason": "length"},
    {"problem_id": "any", "completion": "for any data set", "gen_time": 0.01},
    {"dataset": "d1", "problem_id": "long", "completion": "0123456789" * 8, "output_tokens": 20},
]

Replay = Callable[..., Awaitable[TestClient[Any, Any]]]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in RECORDED))
    return path


@pytest.fixture
async def replay(recorded: Path) -> AsyncIterator[Replay]:
    """Start the replay server with settings of the test's choice, in this process."""
    clients = []

    async def start(**settings: object) -> TestClient[Any, Any]:
        values = {"replay_completions": str(recorded), **settings}
        server = TestServer(build_app(GeneratorSettings.model_validate(values)))
        await server.start_server()
        client = TestClient(server)
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()


async def chat(
    client: TestClient[Any, Any], sample: str = "d1/p%2F1/0", /, **fields: object
) -> aiohttp.ClientResponse:
    body = {"messages": [{"role": "user", "content": "?"}], **fields}
    headers = {"X-Request-Id": f"run/{sample}"} if sample else {}
    return await client.post("/v1/chat/completions", json=body, headers=headers)
