import asyncio
import base64
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from services.sandbox import probe, runner
from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import FIRST_UID
from shared.errors import ServiceError
from tests.sandbox.installations import python_for
from tests.sandboxes import EXPECTED, own_sandbox, rungs

needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


class Sandbox:
    """A client of one real server."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def send(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        url = f"{self.url}{path}"
        async with self.session.request(method, url, data=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def post(self, **request: Any) -> tuple[int, Any]:
        return await self.send("POST", "/run_code", json.dumps(request).encode())

    async def submit(self, **request: Any) -> tuple[int, Any]:
        return await self.send("POST", "/submit", json.dumps(request).encode())

    async def run(self, code: str, language: str = "python", **request: Any) -> Any:
        status, answer = await self.post(code=code, language=language, **request)
        assert status == 200, answer
        return answer

    async def ready(self) -> Any:
        async with self.session.get(f"{self.url}/readyz") as answer:
            return await answer.json()

    async def metric(self, name: str) -> float:
        async with self.session.get(f"{self.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


StartSandbox = Callable[..., Awaitable[Sandbox]]


@pytest.fixture(scope="session", autouse=True)
def interpreter_asked_once() -> Iterator[None]:
    """Each server asks its interpreter for the packages, which takes as long as its start."""
    ask, answers = probe._ask_interpreter, dict[Path, Any]()

    def ask_once(settings: SandboxSettings) -> Any:
        if settings.python not in answers:
            answers[settings.python] = ask(settings)
        return answers[settings.python]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "_ask_interpreter", ask_once)
        yield


@pytest.fixture(scope="session")
def temp_root() -> Iterator[Path]:
    """A folder for the files of servers that every user can enter, in contrast to pytest's own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


# Servers of one user count their processes together, so those of a test run get other users: each
# worker of pytest-xdist has so many, and each server in it a block of them.
USERS_OF_WORKER, USERS_OF_SERVER = 496, 16
_servers = count()


def next_user() -> int:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    blocks = USERS_OF_WORKER // USERS_OF_SERVER
    block = next(_servers) % blocks * USERS_OF_SERVER
    return FIRST_UID + worker % 8 * USERS_OF_WORKER + block


@pytest.fixture
async def start_sandbox(
    temp_root: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StartSandbox]:
    """Starts real servers in this process, with the settings given."""
    servers: list[TestServer] = []
    async with ClientSession() as session:

        async def start(**settings: Any) -> Sandbox:
            settings.setdefault("temp_root", temp_root)
            settings.setdefault("concurrency", 2)
            user = next_user()
            monkeypatch.setattr(runner, "FIRST_UID", user)
            monkeypatch.setattr(runner, "LAST_UID", user)
            settings.setdefault("python", python_for(settings.get("isolation", "auto")))
            server = TestServer(create_app(SandboxSettings(**settings)))
            await server.start_server()
            servers.append(server)
            return Sandbox(session, str(server.make_url("")).rstrip("/"))

        yield start
        await session.close()  # a server waits for what its clients have not sent yet
        for server in servers:
            await server.close()


def unavailable(kind: str, error: ServiceError) -> None:
    """Skip the test, unless all isolations must work here."""
    if EXPECTED in os.environ:
        raise error
    pytest.skip(f"{kind} does not work here: {error}")


UrlOf = Callable[[str], str]


@pytest.fixture(scope="session")
def shared_servers(temp_root: Path) -> Iterator[UrlOf]:
    """URLs of servers that tests share, by isolation; the first test that needs one starts it.

    A test that changes settings or counts requests starts its own server.
    """
    with ExitStack() as stack:

        @cache
        def start(kind: str) -> str | ServiceError:
            folder = temp_root / kind
            folder.mkdir()
            settings = {"ISOLATION": kind, "TEMP_ROOT": temp_root, "PYTHON": python_for(kind)}
            variables = {f"PLUMBLINE_SANDBOX_{key}": str(value) for key, value in settings.items()}
            try:
                return stack.enter_context(own_sandbox(folder, **variables))
            except ServiceError as error:
                return error

        def url_of(kind: str) -> str:
            for rung in ("bwrap", "auto") if kind == "auto" else (kind,):
                if isinstance(url := start(rung), str):
                    return url
            unavailable(kind, url)
            raise AssertionError(url)

        yield url_of


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as session:
        yield session


@pytest.fixture
async def sandbox(shared_servers: UrlOf, session: ClientSession) -> Sandbox:
    return Sandbox(session, shared_servers("auto"))


@pytest.fixture(params=rungs("bwrap", "landlock", "none"))
async def every_isolation(
    request: pytest.FixtureRequest, shared_servers: UrlOf, session: ClientSession
) -> Sandbox:
    return Sandbox(session, shared_servers(request.param))


@pytest.fixture
async def isolated(sandbox: Sandbox) -> Sandbox:
    ready = await sandbox.ready()
    if ready["isolation"] == "none":
        pytest.skip(f"this machine allows no isolation: {ready['tried']}")
    return sandbox


@pytest.fixture
async def namespaced(isolated: Sandbox) -> Sandbox:
    """A sandbox whose programs have namespaces: a /tmp, processes and users of their own."""
    if (ready := await isolated.ready())["isolation"] == "landlock":
        pytest.skip(f"this machine allows no namespaces: {ready['tried']}")
    return isolated


@pytest.fixture
def token() -> str:
    """Put on a command line, it shows whether that process is alive."""
    return f"token-{secrets.token_hex(8)}"


def alive(token: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for a state of the outside world that nothing announces."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that programs of other users can enter, which they cannot with ``tmp_path``."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
