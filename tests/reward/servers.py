"""Reward services and judges over real Redis and sandbox, in the test's process or beside it."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout
from redis import Redis

from services.cli.embedded.services import ChildProcess
from services.reward.app import make_app
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.config import Config, load_config
from shared.service.access import Access
from shared.service.server import listening
from tests.processes import service_process

DEMO = Path(__file__).parents[2] / "demo"
EVERYTHING = {"PLUMBLINE_REWARD_ALLOW_EVAL": "true"}


@dataclass(frozen=True)
class Served:
    """A service in the test's process, and a client of it."""

    service: RewardService
    client: ClientSession
    url: str

    async def score(self, **body: object) -> tuple[int, dict[str, object]]:
        async with self.client.post(f"{self.url}/v1/score", json=body) as response:
            return response.status, json.loads(await response.read())


def quick() -> Config:
    limits = ["sandbox.timeout=1", "judge.max_timeouts=1"]
    return load_config(None, ["judge.canaries=false", *limits])


@asynccontextmanager
async def served(
    redis: Redis,
    url: str,
    *,
    data: str = str(DEMO / "data"),
    config: Config | None = None,
    **settings: object,
) -> AsyncIterator[Served]:
    """Serve in this process; nobody judges."""
    given = {"allow_eval": True, **settings}
    known = RewardSettings(redis_url=url, data=data, **given)  # type: ignore[arg-type]
    opened = RewardService.opened(known, redis, config=config or quick(), upkeep_every=0.1)
    async with opened as service:
        app = make_app(service, redis, access=Access(known.hosts, known.bearer))
        async with (
            listening(app, "127.0.0.1", 0, 0.5) as port,
            ClientSession(timeout=ClientTimeout(60)) as client,
        ):
            yield Served(service, client, f"http://127.0.0.1:{port}")


@contextmanager
def process(
    name: str, module: str, folder: Path, **environment: str
) -> Iterator[tuple[ChildProcess, str]]:
    """Start a service of the project as a process; yields it and its base URL when it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / f"{name}.log", folder / f"{name}.port"
    with service_process(module, *files, **environment) as running:
        yield running


def judge_process(redis_url: str, sandbox_url: str, folder: Path, name: str = "judge"):
    """A judge worker as a process."""
    return process(name, "services.judge", folder, REDIS_URL=redis_url, SANDBOX_URLS=sandbox_url)


def demo_completions() -> list[dict[str, str]]:
    lines = (DEMO / "completions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
