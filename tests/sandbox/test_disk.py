"""A program cannot fill the disk that others use, and is not blamed for a full one."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.sandbox.slot.init import below
from tests.sandbox.conftest import StartSandbox
from tests.sandbox.test_channels import run_cases

MIB = 1 << 20
LIMITS = {"disk_limit_bytes": 20 * MIB, "file_limit_bytes": 8 * MIB}
FILLERS = {
    "files": "for i in range(100): open(f'f{i}', 'wb').write(bytes(4 << 20))",
    "files below a closed folder": (
        "import os\nos.mkdir('d')\n"
        "kept = [open(f'd/{i}', 'wb', 0) for i in range(50)]\nos.chmod('d', 0)\n"
        "for file in kept: file.write(bytes(4 << 20))"
    ),
    "files below a folder in a closed one": (
        "import os\nos.makedirs('d/e')\nos.chdir('d/e')\nos.chmod('../../d', 0)\n"
        "for i in range(50): open(f'{i}', 'wb').write(bytes(4 << 20))"
    ),
    "files below a path that is too long": (
        "import os\nfor _ in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "for i in range(50): open(f'{i}', 'wb').write(bytes(4 << 20))"
    ),
    "folders without end": "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')",
    "removed files of an orphan": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    kept = []\n"
        "    for i in range(100):\n"
        "        kept.append(open('x', 'wb', 0)); os.remove('x'); kept[-1].write(bytes(4 << 20))\n"
        "time.sleep(60)"
    ),
}


def test_the_look_at_a_closed_folder_changes_none_outside(open_folder: Path):
    outside, work = open_folder / "outside", open_folder / "work"
    outside.mkdir(0o755)
    for path in (work, work / "closed"):
        path.mkdir()
    (work / "closed" / "file").touch()
    (work / "closed").chmod(0o377)
    folder = os.open(work, os.O_RDONLY)
    looks = below(folder)
    for _ in ("closed", "file"):
        next(looks)
    (work / "closed").rename(work / "moved")  # as a program may do meanwhile
    (work / "closed").symlink_to(outside)
    assert list(looks) == []
    os.close(folder)
    assert [path.stat().st_mode & 0o777 for path in (outside, work / "moved")] == [0o755, 0o377]


@pytest.fixture
def small_disk(open_folder: Path) -> Iterator[Path]:
    """A file system of 64 MiB that the test may fill."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", str(open_folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield open_folder
    subprocess.run(["umount", "--lazy", str(open_folder)], check=True)


async def test_a_program_beyond_its_share_of_the_disk_is_killed(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(concurrency=len(FILLERS), **LIMITS)
    wait = "\nimport time; time.sleep(60)"
    answers = await asyncio.gather(
        *(sandbox.run(code + wait, run_timeout=60) for code in FILLERS.values())
    )
    failures = {}
    for name, answer in zip(FILLERS, answers, strict=True):
        result = answer["run_result"]
        ended = result["status"], result["return_code"], "disk limit of" in result["stderr"]
        if ended != ("Finished", -signal.SIGKILL, True):
            failures[name] = answer
    assert not failures, failures
    again = await asyncio.gather(*(sandbox.run("print(1)") for _ in FILLERS))
    assert {answer["status"] for answer in again} == {"Success"}


async def test_a_full_disk_is_a_busy_sandbox(start_sandbox: StartSandbox, small_disk: Path):
    sandbox = await start_sandbox(concurrency=1, temp_root=small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(60 * MIB))
    status, answer = await sandbox.post(code="print(1)", language="python")
    assert (status, answer["detail"].startswith("the sandbox's disk is full")) == (503, True)
    status, answer = await run_cases(sandbox, "print(1)", [""])
    assert (status, answer["detail"].startswith("the sandbox's disk is full")) == (503, True)
    assert (await sandbox.ready())["ready"] is False
    filler.unlink()
    assert (await sandbox.run("print(1)"))["status"] == "Success"


@pytest.mark.parametrize(("way", "megabytes"), [("run_code", 50), ("run_cases", 60)])
async def test_a_program_is_not_blamed_for_its_neighbours_files(
    start_sandbox: StartSandbox, small_disk: Path, way: str, megabytes: int
):
    sandbox = await start_sandbox(concurrency=1, temp_root=small_disk)
    code = (
        "import time\nopen('started', 'w').close()\n"
        "for i in range(200): open('x', 'a').write('x' * 100_000); time.sleep(0.01)"
    )
    if way == "run_code":
        work = asyncio.create_task(sandbox.post(code=code, language="python"))
    else:
        work = asyncio.create_task(run_cases(sandbox, "import time; time.sleep(3)", [""]))
    await asyncio.sleep(1)
    (small_disk / "filler").write_bytes(bytes(megabytes * MIB))
    status, answer = await work
    assert (status, answer["detail"].startswith("the sandbox's disk is full")) == (503, True)
