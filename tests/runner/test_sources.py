"""Sources of generations: recorded completions, and a generator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from services.runner.sources import GeneratorSource, RecordedSource
from shared.completions import RecordedCompletion
from shared.config import load_config
from shared.schemas import SampleId, sha256
from tests.runner.generators import Servers, answer
from tests.shared.ledgers import problem


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, tmp_path)


async def test_lone_surrogates_are_replaced_since_no_file_could_hold_them() -> None:
    sample = SampleId("d", "p")
    source = RecordedSource({sample: RecordedCompletion(problem_id="p", completion="a\ud800b")})
    [generation] = [g async for g in source([sample])]
    assert generation.completion == "a\ufffdb"
    assert source.hashes() == {sample: sha256("a\ufffdb")}
    assert generation.model_dump_json()


async def test_each_sample_is_asked_with_the_seed_that_is_stored_with_it(servers: Servers) -> None:
    sent: dict[str, dict[str, Any]] = {}

    async def chat(request: web.Request) -> web.Response:
        sent[request.headers["X-Request-Id"]] = await request.json()
        return answer()

    config = load_config(
        None, ["actor_rollout_ref.rollout.temperature=0.8", "data.system_prompt=Be brief."]
    )
    client = await servers.client(await servers.stand_in(chat))
    source = GeneratorSource(client, config, [problem("p1"), problem("p2")], "run")
    owed = [SampleId("d1", name, index) for name in ("p1", "p2") for index in range(3)]
    generations = [generation async for generation in source(owed)]
    seeds = {generation.sample: generation.seed for generation in generations}
    assert set(seeds) == set(owed)
    assert len(set(seeds.values())) == 6
    for sample, seed in seeds.items():
        payload = sent[f"run/{sample.key}"]
        assert payload["seed"] == seed
        assert payload["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_no_more_requests_than_the_config_allows(servers: Servers) -> None:
    in_flight, most = 0, 0

    async def chat(_request: web.Request) -> web.Response:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
        return answer()

    config = load_config(None, ["generation.concurrency=20"])
    client = await servers.client(await servers.stand_in(chat), concurrency=20)
    source = GeneratorSource(client, config, [problem("p1")], "run")
    owed = [SampleId("d1", "p1", index) for index in range(300)]
    assert len([generation async for generation in source(owed)]) == 300
    assert 16 <= most <= 20
