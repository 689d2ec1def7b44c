"""The same verdict on every rung of isolation and in every installation (``matrix_programs``)."""

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from services.judge.sandbox import (
    Attempts,
    SandboxClient,
    SandboxUnavailableError,
    run_with_harness,
)
from shared.errors import ServiceError
from shared.harness.confinement import landlock_abi
from shared.harness.sandbox_api import RunCodeRequest
from shared.harness.wire import CaseLimits, RunCasesRequest
from tests.judge.pools import OpenPool
from tests.sandbox.conftest import unavailable
from tests.sandbox.installations import INSTALLATIONS, ROOT, installed
from tests.sandbox.matrix_programs import PROGRAMS, Program, Way

LIMITS = CaseLimits(
    cpu=10, wall=30, compile=30, budget=120, memory=2 << 30, output=1 << 20, processes=64
)
# Each ordinary rung once; the others run nightly.
ORDINARY = {
    ("root" if ROOT else "user", "bwrap"),
    ("user", "landlock"),
}
CELLS = [
    pytest.param(name, rung, marks=() if (name, rung) in ORDINARY else pytest.mark.nightly)
    for name, installation in INSTALLATIONS.items()
    for rung in installation.rungs
]
AT_ONCE = 6
SIGNALS_COVERED = landlock_abi() >= 6

Outcome = tuple[int | None, str]


async def run(client: SandboxClient, way: Way, program: Program) -> Outcome:
    attempts = Attempts()
    if way == "run_code":
        request = RunCodeRequest(
            code=program.code,
            language=program.language,
            stdin=program.stdin,
            compile_timeout=30,
            run_timeout=30,
            memory_limit_MB=2048,
        )
        answer = (await client.run_code(request, attempts)).run_result
        assert answer is not None
        return answer.return_code, answer.stdout or ""
    assert program.language != "bash"
    cases = RunCasesRequest(
        code=program.code,
        language=program.language,
        inputs=[program.stdin, program.stdin],
        limits=LIMITS,
    )
    if way == "run_cases":
        result = await client.run_cases(cases, attempts)
    else:
        result = await run_with_harness(client, cases, attempts, alone=False)
    if result.end != "done":
        return None, f"end: {result.end}"
    first, second = result.cases[0], result.cases[1]
    assert (first.exit_code, first.stdout) == (second.exit_code, second.stdout)
    return first.exit_code, first.stdout.decode()


def wanted(program: Program, rung: str) -> Outcome:
    return program.differs.get(rung, (program.exit_code, program.stdout))


async def mismatches(
    url: str, rung: str, names: Collection[str]
) -> dict[str, tuple[Outcome, Outcome]]:
    found: dict[str, tuple[Outcome, Outcome]] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(client: SandboxClient, name: str, way: Way) -> None:
        program = PROGRAMS[name]
        async with places:
            try:
                outcome = await run(client, way, program)
            except (SandboxUnavailableError, AssertionError) as error:
                outcome = None, repr(error)
        if outcome != wanted(program, rung):
            found[f"{name}, {way}"] = wanted(program, rung), outcome

    async with SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=5) as client:
        await asyncio.gather(
            *(one(client, name, way) for name in names for way in PROGRAMS[name].ways)
        )
    return found


NAMES = [
    name
    for name, program in PROGRAMS.items()
    if (program.language != "cpp" or shutil.which("g++"))
    and (SIGNALS_COVERED or not program.signals)
]


@pytest.mark.parametrize(("installation", "rung"), CELLS)
async def test_every_program_has_its_result(open_folder: Path, installation: str, rung: str):
    try:
        started = installed(
            INSTALLATIONS[installation], open_folder, PLUMBLINE_SANDBOX_ISOLATION=rung
        )
        with started as url:
            assert await mismatches(url, rung, NAMES) == {}
    except ServiceError as error:
        unavailable(f"{rung} for {installation}", error)


@pytest.mark.skipif(not ROOT, reason="the server must be root")
@pytest.mark.parametrize("installation", ["root, hidden interpreter", "container"])
@pytest.mark.parametrize("rung", ["landlock", "none"])
async def test_without_mounts_no_program_runs_as_root(
    open_folder: Path, installation: str, rung: str
):
    """Neither where other users cannot execute the interpreter, nor where there are none."""
    started = installed(INSTALLATIONS[installation], open_folder, PLUMBLINE_SANDBOX_ISOLATION=rung)
    with pytest.raises(ServiceError, match="as root"), started:
        pytest.fail("it started")
