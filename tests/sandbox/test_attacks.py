"""Programs that attack their slot: the next program in it has its right result."""

import asyncio
import base64

import pytest

from services.sandbox.probe import IsolationError
from services.sandbox.settings import IsolationChoice
from tests.sandbox.conftest import Sandbox, StartSandbox, unavailable
from tests.sandbox.test_channels import run_cases
from tests.sandboxes import rungs

ATTACKS = {
    "kills whom it can guess": (
        "import os, signal\n"
        "for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):\n"
        "    for pid in (1, os.getppid(), *range(max(2, os.getpid() - 8), os.getpid())):\n"
        "        try: os.kill(pid, number)\n"
        "        except OSError: pass\n"
    ),
    "leaves deep and closed folders": (
        "import os\n"
        "for folder in ('/tmp', '/dev/shm', os.getcwd()):\n"
        "    try:\n"
        "        os.chdir(folder)\n"
        "        for _ in range(1100): os.mkdir('x' * 200); os.chdir('x' * 200)\n"
        "        os.mkdir('closed'); os.mkdir('closed/inner'); os.chmod('closed', 0)\n"
        "    except OSError: pass\n"
    ),
    "writes junk everywhere": (
        "import os, socket\n"
        "for fd in range(1000):\n"
        '    try: os.write(fd, b\'{"status": 0, "clean": true}\\n\' * 10)\n'
        "    except OSError: pass\n"
        "    try: socket.socket(fileno=os.dup(fd)).shutdown(2)\n"
        "    except OSError: pass\n"
    ),
    "leaves a crowd": (
        "import os, signal, time\n"
        "try:\n"
        "    for _ in range(40):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork() == 0:\n"
        "                for n in (1, 2, 3, 15, 20): signal.signal(n, signal.SIG_IGN)\n"
        "            while True: time.sleep(60)\n"
        "except OSError: pass\n"
    ),
}
BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"


# They end only by a limit; the others get the time that they need on a busy machine.
ENDLESS = {"leaves a crowd"}
SLOTS = len(ATTACKS)


@pytest.fixture(params=rungs("bwrap", "landlock"))
async def slots(request: pytest.FixtureRequest, start_sandbox: StartSandbox) -> Sandbox:
    try:
        sandbox = await start_sandbox(isolation=IsolationChoice(request.param), concurrency=SLOTS)
    except IsolationError as error:
        unavailable(request.param, error)
    ready = await sandbox.ready()
    if request.param == "landlock" and "signals between programs" not in ready["covered"]:
        pytest.skip("this kernel's Landlock lets programs signal the machine's processes")
    return sandbox


async def innocent(sandbox: Sandbox) -> None:
    code = "import time; time.sleep(0.3); print(6 * int(input()))"
    answer = await sandbox.run(code, stdin="7")
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "42\n"), answer
    status, result = await run_cases(sandbox, code, ["7", "8"])
    assert (status, result["end"]) == (200, "done"), result
    printed = [base64.b64decode(result["cases"][index]["stdout"]) for index in ("0", "1")]
    assert printed == [b"42\n", b"48\n"]


async def attack(sandbox: Sandbox, code: str, seconds: float = 2) -> None:
    await sandbox.run(code, run_timeout=seconds, memory_limit_MB=512)
    limits = {"cpu": seconds, "wall": seconds, "budget": 2 * seconds, "memory": 512 << 20}
    status, result = await run_cases(sandbox, code, ["", ""], **limits)
    assert status == 200, result


async def test_the_next_programs_have_their_results(slots: Sandbox):
    """Each slot has an attack, and then a program that sleeps while the others have theirs."""
    seconds = {name: 1 if name in ENDLESS else 2 for name in ATTACKS}
    await asyncio.gather(*(attack(slots, code, seconds[name]) for name, code in ATTACKS.items()))
    await asyncio.gather(*(innocent(slots) for _ in range(SLOTS)))
    if "no limit of processes" not in (await slots.ready())["missing"]:
        await attack(slots, BOMB, 1)
        await asyncio.gather(*(innocent(slots) for _ in range(SLOTS)))
