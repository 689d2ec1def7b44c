"""LiteLLM's real proxy as the generator: its answers, errors, and a backend that is away.

The proxy and its hundred packages are installed from PyPI into a folder of the test's own, unless
``PLUMBLINE_LITELLM`` names the program.
"""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.runner.outages import OutageWatch
from shared.errors import ServiceError
from shared.schemas import Generation, SampleId
from shared.service.tasks import with_watch
from tests.runner.generators import MESSAGES, PARAMS, SAMPLE, Notes, Servers, answer

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
VERSION = "litellm[proxy]==1.108.7"
KEY = f"sk-{secrets.token_hex(32)}"  # it refuses to start without one
MOCKED = {
    "good": "print(1 + 1)",
    "busy": "litellm.RateLimitError",
    "long": "litellm.ContextWindowExceededError",
    "broken": "litellm.InternalServerError",
}


def _installed(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", VERSION]
    subprocess.run(pip, check=True)
    return str(folder / "bin" / "litellm")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def backend_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, backend_port: int) -> Iterator[str]:
    """The address of a proxy with mocked models, and one with a real backend, ``away``."""
    folder = tmp_path_factory.mktemp("litellm")
    program = os.environ.get("PLUMBLINE_LITELLM") or _installed(folder / "venv")
    models = [
        {"model_name": name, "litellm_params": {"model": "openai/x", "api_key": "k",
                                                "mock_response": mock}}
        for name, mock in MOCKED.items()
    ]  # fmt: skip
    backend = {"model": "openai/x", "api_key": "k"}
    backend["api_base"] = f"http://127.0.0.1:{backend_port}/v1"
    document = {
        "model_list": [*models, {"model_name": "away", "litellm_params": backend}],
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": KEY},
    }
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(document))
    port = free_port()
    command = [program, "--config", str(config), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    # Its table of prices is in the package, too.
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1"], env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + 300
            while not _is_alive(url):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait()


def _is_alive(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/liveliness", timeout=10):
            return True
    except OSError:
        return False


async def test_mocked_answers(servers: Servers, proxy: str) -> None:
    async def asked(model: str) -> Generation:
        client = await servers.client(proxy, api_key=KEY, model=model)
        assert await client.check() == model
        return await client.generate(SAMPLE, "run", MESSAGES, PARAMS)

    good, long = await asked("good"), await asked("long")
    assert (good.completion, good.finish_reason, good.error) == (MOCKED["good"], "stop", None)
    assert good.output_tokens is not None
    assert long.error is not None and long.error.startswith("prompt_too_long: ")


@pytest.mark.parametrize(("model", "status"), [("busy", 429), ("broken", 500)])
async def test_errors_of_all_requests_end_the_run(
    servers: Servers, proxy: str, model: str, status: int
) -> None:
    client = await servers.client(proxy, api_key=KEY, model=model, retry_budget=2.0)

    async def work() -> None:
        await client.generate(SAMPLE, "run", MESSAGES, PARAMS)

    with pytest.raises(ServiceError, match=f"answers HTTP {status} since"):
        await with_watch(work, OutageWatch(Notes(), [lambda: client.trouble(1)], tick=0.1).watch)


async def test_its_backend_away_and_back(servers: Servers, proxy: str, backend_port: int) -> None:
    """A dozen samples, of which the first few are answered before it goes for two minutes."""
    answered, gone = 0, asyncio.Event()

    async def chat(_request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered == 4:
            gone.set()
        return answer(id="x", object="chat.completion", created=1, model="x")

    def backend() -> TestServer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        return TestServer(app, port=backend_port)

    first, second = backend(), backend()
    await first.start_server()
    patience = {"retry_budget": 600.0, "max_attempts": 1, "backoff": 0.2}
    client = await servers.client(proxy, api_key=KEY, model="away", concurrency=2, **patience)
    done: list[Generation] = []

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(12):
                sample = replace(SAMPLE, sample_index=index)
                group.create_task(generate(sample))

    async def generate(sample: SampleId) -> None:
        done.append(await client.generate(sample, "run", MESSAGES, PARAMS))

    notes = Notes()
    running = asyncio.create_task(
        with_watch(work, OutageWatch(notes, [lambda: client.trouble(12 - len(done))]).watch)
    )
    await gone.wait()
    await first.close()
    async with asyncio.timeout(300):
        while len(notes.texts) < 5:  # the first after 10 s, then one every 30 s
            await asyncio.sleep(0.1)
    assert "answers HTTP 500 since " in notes.texts[0]
    await second.start_server()
    await running
    await second.close()
    assert [one.error for one in done] == [None] * 12
