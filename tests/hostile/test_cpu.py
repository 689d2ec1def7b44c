"""The limit of CPU time holds wherever an answer works, on every rung and by ``/run_code``."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from services.judge.sandbox import Attempts, SandboxClient
from services.judge.verdict import Lateness, lateness
from services.sandbox.app import create_app
from services.sandbox.probe import IsolationError
from services.sandbox.settings import IsolationChoice, SandboxSettings
from shared.harness.wire import CallResult, CaseLimits, CaseRun, RunCasesRequest
from tests.hostile.cpu_programs import CPP, PYTHON
from tests.judge.pools import OpenPool
from tests.judge.test_harness_fidelity import PYTHONS, USERS, harness
from tests.sandbox.conftest import unavailable
from tests.sandbox.installations import python_for

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]

LIMIT, KILLED_AT = 0.4, 0.5
LITTLE, MUCH = str(0.5 * LIMIT), str(2 * LIMIT)
LIMITS = CaseLimits(
    cpu=KILLED_AT, wall=10, compile=30, budget=60, memory=4 << 30, output=1 << 20, processes=64
)
PROGRAMS = {**PYTHON, **(CPP if shutil.which("g++") else {})}
# Neither depends on what else the machine does: their children are seen, or counted when they end.
CORE = {
    name: PROGRAMS[name]
    for name in (
        "threads",
        "a child whose end is ignored",
        "a daemon",
        "another interpreter",
        "C++: a child whose end is ignored",
    )
    if name in PROGRAMS
}
# Load can only make a program look slower, so the judge would run these again.
ATTEMPTS = 3

Run = Callable[[str, str, str], Awaitable[CallResult]]
"""Runs code in a language, with the work as its input."""


def late(run: CaseRun) -> bool:
    return lateness(run, LIMIT, KILLED_AT, alone=True) is not Lateness.IN_TIME


def fault(much: CallResult, little: CallResult) -> str | None:
    if not late(much.cases[0]):
        return f"too much work is in time: {much.cases[0]}"
    if late(little.cases[0]) or little.cases[0].stdout != b"done\n":
        return f"little work is late: {little.cases[0]}"
    return None


async def test_no_work_escapes_in_a_slot() -> None:
    await check_slot("bwrap", CORE)


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.parametrize("rung", ["bwrap", "landlock", "none"])
async def test_no_work_of_any_program_escapes_in_a_slot(rung: str) -> None:
    await check_slot(rung, PROGRAMS)


async def check_slot(rung: str, programs: dict[str, str]) -> None:
    settings = SandboxSettings(
        isolation=IsolationChoice(rung), concurrency=1, python=python_for(rung)
    )
    server = TestServer(create_app(settings))
    try:
        await server.start_server()
    except IsolationError as error:
        unavailable(rung, error)
    pool = OpenPool([str(server.make_url("")).rstrip("/")])

    async def run(code: str, language: str, work: str) -> CallResult:
        request = {"code": code, "language": language, "inputs": [work], "limits": LIMITS}
        return await client.run_cases(RunCasesRequest.model_validate(request), Attempts())

    try:
        async with SandboxClient(pool, max_attempts=2, retry_budget=30) as client:
            await check(run, programs)
    finally:
        await server.close()


async def check(run: Run, programs: dict[str, str]) -> None:
    faults = {name: await fault_of(run, name, code) for name, code in programs.items()}
    assert not any(faults.values()), {name: text for name, text in faults.items() if text}


async def fault_of(run: Run, name: str, code: str) -> str | None:
    language, reason = "cpp" if name in CPP else "python", None
    for _ in range(ATTEMPTS):
        much, little = [await run(code, language, work) for work in (MUCH, LITTLE)]
        reason = fault(much, little)
        if reason is None or not late(much.cases[0]):
            return reason
    return reason


@pytest.fixture(params=USERS)
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    with folder_for(request.param) as path:
        yield path


@contextmanager
def folder_for(user: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755 if user == "own user" else 0o700)
        yield Path(name)


async def test_no_work_escapes_the_harness() -> None:
    """As in a SandboxFusion, where the case runner arrives as files."""
    with folder_for(USERS[-1]) as folder:
        await check_harness(folder, CORE)


@pytest.mark.nightly
@pytest.mark.alone
async def test_no_work_of_any_program_escapes_the_harness(folder: Path) -> None:
    await check_harness(folder, PROGRAMS)


async def check_harness(folder: Path, programs: dict[str, str]) -> None:
    async def run(code: str, language: str, work: str) -> CallResult:
        words = folder, PYTHONS[0], code.encode(), [work.encode()]
        return harness(*words, limits=LIMITS, language=language)[0]

    await check(run, programs)
