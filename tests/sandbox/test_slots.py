"""Life of slots: start, loss, replacement, cancellation, end."""

import asyncio
import base64
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from services.sandbox import runner as runner_module
from services.sandbox import slots
from services.sandbox.isolation import Isolation
from services.sandbox.probe import ChosenIsolation, IsolationError, choose_isolation
from services.sandbox.reaper import Reaper
from services.sandbox.runner import Runner
from services.sandbox.settings import IsolationChoice, SandboxSettings
from services.sandbox.slots import Slot, SlotLostError
from services.sandbox.workspace import Workspace
from shared.harness.sandbox_api import RunCodeRequest, RunCodeResponse, RunStatus
from shared.harness.sources import harness_sources
from shared.harness.wire import CaseLimits, FunctionTests, RunCasesRequest
from tests.processes import service_process
from tests.sandbox.conftest import Sandbox, alive, next_user, unavailable, until
from tests.sandbox.installations import python_for
from tests.sandboxes import rungs

LIMITS = CaseLimits(cpu=30, wall=30, compile=30, budget=60, memory=1 << 30, output=1 << 20)
ISOLATIONS = rungs("bwrap", "landlock", "none")

Choose = Callable[..., Awaitable[Runner]]


@pytest.fixture
async def choose(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Choose]:
    made: list[ChosenIsolation] = []

    async def choose(kind: str = "auto") -> Runner:
        user = next_user()
        monkeypatch.setattr(runner_module, "FIRST_UID", user)
        monkeypatch.setattr(runner_module, "LAST_UID", user)
        settings = SandboxSettings(
            isolation=IsolationChoice(kind),
            concurrency=1,
            temp_root=open_folder,
            python=python_for(kind),
        )
        try:
            made.append(await choose_isolation(settings, Reaper()))
        except IsolationError as error:
            unavailable(kind, error)
        return made[-1].runner

    yield choose
    for chosen in made:
        await chosen.runner.close()


@pytest.fixture(params=ISOLATIONS)
async def runner(request: pytest.FixtureRequest, choose: Choose) -> Runner:
    return await choose(request.param)


def slot_of(runner: Runner) -> Slot:
    return runner._slot(0)


async def run(runner: Runner, code: str, **request: Any) -> RunCodeResponse:
    return await runner.run(RunCodeRequest(code=code, language="python", **request), slot=0)


async def test_a_clean_program_keeps_its_slot(runner: Runner):
    slot = slot_of(runner)
    await slot.ready()
    started = slot.started
    for _ in range(5):
        answer = await run(runner, "open('x', 'x').write('text'); print(1)")
        assert answer.stdout == "1\n"
        cases = await runner.run_cases(
            RunCasesRequest(code="print(input())", inputs=["a", "b"], limits=LIMITS), slot=0
        )
        assert [case.stdout for case in cases.cases.values()] == [b"a\n", b"b\n"]
        assert await passes(runner, "open('left', 'x')\ndef f(x): return x")
    assert slot.started == started


async def test_a_file_of_the_first_request_may_have_the_name_of_the_answers_folder(runner: Runner):
    """The container starts when the file is there already, and must not take it for its own."""
    await slot_of(runner).close()
    for _ in range(2):
        code, file = "print(open('answer').read())", base64.b64encode(b"text").decode()
        assert (await run(runner, code, files={"answer": file})).stdout == "text\n"
        assert await passes(runner, "def f(x): return x")


async def passes(runner: Runner, code: str) -> bool:
    payload = FunctionTests("", "", ["assert f(1) == 1"], ["f"]).payload
    request = RunCasesRequest(code=code, language="functions", inputs=[payload], limits=LIMITS)
    result = await runner.run_cases(request, slot=0)
    return [case.stdout for case in result.cases.values()] == [b"1\ndone"]


async def test_cases_of_a_killed_container_run_again(runner: Runner, token: str):
    slot = slot_of(runner)
    request = RunCasesRequest(
        code=f"import subprocess, sys; subprocess.run([sys.executable, '-c', "
        f"'import time; time.sleep({{}})'.format(input()), {token!r}])",
        inputs=["1"],
        limits=LIMITS,
    )
    work = asyncio.create_task(runner.run_cases(request, slot=0))
    await until(lambda: alive(token))
    started = slot.started
    os.killpg(slot._pid, signal.SIGKILL)
    result = await work
    assert (result.end, slot.started) == ("done", started + 1)
    assert not alive(token)


async def test_an_idle_container_that_died_is_replaced(runner: Runner):
    slot = slot_of(runner)
    await slot.ready()
    os.killpg(slot._pid, signal.SIGKILL)
    await until(lambda: Path(f"/proc/{slot._pid}/stat").read_text().split()[2] == "Z")
    answer = await run(runner, "print(1)")
    assert (answer.status, answer.stdout) == (RunStatus.SUCCESS, "1\n")


@pytest.mark.parametrize("kind", rungs("bwrap", "landlock"))
async def test_an_unclean_slot_is_replaced(choose: Choose, kind: str, monkeypatch: Any):
    source = slots._source
    unclean = "\nInit.tidy = lambda *_: False\n"
    runner = await choose(kind)
    slot = slot_of(runner)
    await slot.close()
    monkeypatch.setattr(slots, "_source", lambda name: source(name) + unclean * (name == "init"))
    for _ in range(2):
        started = slot.started
        assert (await run(runner, "print(1)")).stdout == "1\n"
        assert (slot.started, slot.running) == (started + 1, False)


def sleeper(token: str) -> str:
    return (
        "import os, sys; os.execv(sys.executable, "
        f"[sys.executable, '-c', 'import time; time.sleep(60)', {token!r}])"
    )


async def test_nothing_is_left_of_a_closed_runner(runner: Runner, open_folder: Path):
    slot = slot_of(runner)
    await run(runner, "import os; os.mkdir('x'); os.chmod('x', 0)")
    pid = slot._pid
    await runner.close()
    assert not Path(f"/proc/{pid}").exists()
    assert [path for path in open_folder.iterdir() if path.name.startswith("tmp")] == []


async def test_a_start_that_fails_has_a_reason_in_one_line(choose: Choose, monkeypatch: Any):
    command, reason = ["sh", "-c", "printf 'one\\ntwo\\n' >&2"], "one; two"
    runner = await choose()
    await slot_of(runner).close()
    monkeypatch.setattr(Isolation, "command", lambda *_: command)
    answer = await run(runner, "print(1)")
    assert answer.status is RunStatus.SANDBOX_ERROR
    assert reason in answer.message
    assert "\n" not in answer.message
    with pytest.raises(SlotLostError) as error:
        await runner.run_cases(RunCasesRequest(code="print(1)", inputs=[""], limits=LIMITS), slot=0)
    assert reason in str(error.value)


@pytest.mark.parametrize("kind", ISOLATIONS)
async def test_the_servers_death_ends_its_containers(
    choose: Choose, kind: str, open_folder: Path, token: str, session: ClientSession
):
    await choose(kind)  # or skip
    folder = open_folder / "server"
    folder.mkdir(mode=0o755)
    code = (
        "import subprocess, sys, time\n"
        "work = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        f"subprocess.run(['sh', '-c', 'setsid \"$@\" &', 'sh', *work, {token!r}])\ntime.sleep(60)"
    )
    settings = {"ISOLATION": kind, "TEMP_ROOT": str(folder), "PYTHON": str(python_for(kind))}
    variables = {f"PLUMBLINE_SANDBOX_{name}": value for name, value in settings.items()}
    files = open_folder / "log", open_folder / "port"
    with service_process("services.sandbox", *files, **variables) as (server, url):
        running = asyncio.create_task(Sandbox(session, url).run(code, run_timeout=60))
        await until(lambda: alive(token))
        assert server.process is not None
        server.process.kill()
        await asyncio.wait([running])
        await until(lambda: not alive(token))
        await until(lambda: not alive(str(folder)))


async def test_the_next_request_waits_until_a_cancelled_one_is_cleaned_up(
    choose: Choose, monkeypatch: pytest.MonkeyPatch
):
    runner = await choose()
    begun, clear = threading.Event(), Workspace.clear

    def late(workspace: Workspace) -> bool:
        begun.set()
        time.sleep(0.2)  # as behind other work
        return clear(workspace)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "clear", late)
        first = asyncio.create_task(run(runner, "open('f', 'w').close()"))
        await until(begun.is_set)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        # The slot counts as free now.
        code = "import time; time.sleep(0.5); print(len(open(__file__).readlines()))"
        answer = await asyncio.wait_for(run(runner, code), 20)
    assert (answer.status, answer.stdout) == (RunStatus.SUCCESS, "1\n")


async def test_a_requests_files_hold_up_nobody_and_are_gone_with_it(
    choose: Choose, monkeypatch: pytest.MonkeyPatch
):
    runner = await choose()
    begun, elsewhere, prepare = threading.Event(), threading.Event(), Workspace.prepare

    def slowly(workspace: Workspace, *arguments: Any) -> None:
        begun.set()
        assert elsewhere.wait(10)  # the event loop has something else to do
        time.sleep(0.2)
        prepare(workspace, *arguments)

    monkeypatch.setattr(Workspace, "prepare", slowly)
    first = asyncio.create_task(run(runner, "", files={"f": ""}))
    await until(begun.is_set)
    elsewhere.set()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    answer = await run(runner, "import os; print(len(os.listdir()))")
    assert (answer.status, answer.stdout) == (RunStatus.SUCCESS, "1\n")


@pytest.mark.parametrize("way", ["run_code", "run_cases"])
async def test_a_program_that_stops_the_init_does_not_hold_its_slot(
    choose: Choose, monkeypatch: pytest.MonkeyPatch, way: str
):
    """As it can on a kernel where Landlock does not cover signals."""
    source = slots._source
    old_kernel = "\nsyscalls.scope_signals = lambda: None\n"
    monkeypatch.setattr(slots, "_source", lambda name: source(name) + old_kernel * (name == "init"))
    runner = await choose("none")
    # The init is the parent of a program, and the grandparent of a case. It is the child of this
    # process, which has the same user where the tests run as a plain one.
    parent = "open(f'/proc/{os.getppid()}/stat').read().split()[3]"
    init = "os.getppid()" if way == "run_code" else f"os.getppid(), int({parent})"
    code = (
        f"import os, signal, time\nfor pid in ({init},):\n"
        "    try: os.kill(pid, signal.SIGSTOP)\n"
        "    except OSError: pass\n"
        "time.sleep(600)"
    )
    if way == "run_code":
        answer = await run(runner, code, run_timeout=600)
        assert answer.status is RunStatus.SANDBOX_ERROR
    else:
        texts = harness_sources(functions=True)
        texts["shared.harness.cases.syscalls"] += "\nscope_signals = lambda: None\n"
        monkeypatch.setattr(slots, "harness_sources", lambda *, functions: texts)
        await slot_of(runner).close()
        limits = replace(LIMITS, cpu=600, wall=600, budget=600)
        await runner.run_cases(RunCasesRequest(code=code, inputs=[""], limits=limits), slot=0)
    assert (await run(runner, "print(1)")).stdout == "1\n"
