"""Thousands of tiny programs in a row through two slots of the sandbox.

`python -m tests.bench.endurance_slots --isolation bwrap` runs 10,000 programs through `/run_code`,
then as many through the judge, which takes the sandbox's own way to run cases where it offers one.
Every 1,000 programs it prints what the server and all its descendants hold (memory, open files,
processes, mounts) and what programs leave behind (entries of the temporary folder and of shared
memory, System V IPC), then the rates of the first and of the last thousand.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from services.sandbox.settings import IsolationChoice
from shared.config import load_config
from shared.errors import ServiceError
from shared.schemas import StdioTests
from tests.bench.answers import Answer, make_problem
from tests.bench.judges import by_method, client
from tests.e2e import plumb
from tests.sandboxes import own_sandbox

RunProgram = Callable[[int], Awaitable[None]]
_SLOTS = 2
_PROGRAM = "print(int(input()) + 1)"


@dataclass(frozen=True, slots=True)
class Held:
    """What the server and all its descendants hold, and what lies about; memory in MB.

    ``private`` counts the entries of each /tmp and /dev/shm that is not the machine's.
    """

    memory: float
    open_files: int
    processes: int
    mounts: int
    temporary: int
    private: int
    shared: int
    ipc: int

    def __str__(self) -> str:
        return (
            f"{self.memory:7.1f} MB, {self.open_files:4} open files, {self.processes:3} processes, "
            f"{self.mounts:4} mounts; left: {self.temporary} in the temporary folder, "
            f"{self.private} in private folders, {self.shared} in /dev/shm, {self.ipc} of SysV IPC"
        )


def main() -> None:
    modes = [mode.value for mode in IsolationChoice if mode is not IsolationChoice.AUTO]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isolation", nargs="*", choices=modes, default=modes)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1_000, help="programs between two samples")
    arguments = parser.parse_args()
    for mode in arguments.isolation:
        with tempfile.TemporaryDirectory() as folder:
            _measure(mode, Path(folder), arguments.programs, arguments.every)


def _measure(mode: str, folder: Path, programs: int, every: int) -> None:
    root = folder / "runs"
    root.mkdir()
    settings = {
        "PLUMBLINE_SANDBOX_ISOLATION": mode,
        "PLUMBLINE_SANDBOX_CONCURRENCY": str(_SLOTS),
        "PLUMBLINE_SANDBOX_TEMP_ROOT": str(root),
    }
    try:
        with own_sandbox(folder, **settings) as url:
            asyncio.run(_run(mode, url, root, programs, every))
    except ServiceError as error:
        print(f"{mode}: not measured: {error}")


async def _run(mode: str, url: str, root: Path, programs: int, every: int) -> None:
    async with aiohttp.ClientSession(url) as session, client(url) as sandbox:
        judge = by_method(load_config(None, ["sandbox.timeout=10"]), sandbox)

        async def by_run_code(number: int) -> None:
            body = {"code": _PROGRAM, "language": "python", "stdin": f"{number}\n"}
            async with session.post("/run_code", json=body) as response:
                result = await response.json()
            assert result["run_result"]["stdout"] == f"{number + 1}\n", result

        async def by_judge(number: int) -> None:
            tests = StdioTests(inputs=[f"{number}\n"], outputs=[f"{number + 1}\n"])
            judged = await judge(Answer(make_problem("next", tests), f"```python\n{_PROGRAM}\n```"))
            assert judged.codes == [1], judged

        for name, run_one in (("/run_code", by_run_code), ("the judge", by_judge)):
            print(f"{mode}, {programs} programs through {name}, {_SLOTS} at once")
            await _through(run_one, root, programs, every)


async def _through(run_one: RunProgram, root: Path, programs: int, every: int) -> None:
    for number in range(2 * _SLOTS):  # what only the first time costs
        await run_one(number)
    print(f"  {0:6}: {_held(root)}")
    rates = []
    for start in range(0, programs, every):
        began = time.monotonic()
        await _block(run_one, range(start, min(start + every, programs)))
        rates.append((min(start + every, programs) - start) / (time.monotonic() - began))
        print(f"  {min(start + every, programs):6}: {_held(root)}; {rates[-1]:.0f}/s")
    print(f"  last / first block: {rates[-1] / rates[0]:.2f} ({rates[0]:.0f}, {rates[-1]:.0f}/s)")


async def _block(run_one: RunProgram, numbers: range) -> None:
    left = iter(numbers)

    async def slot() -> None:
        for number in left:
            await run_one(number)

    await asyncio.gather(*(slot() for _ in range(_SLOTS)))


def _held(root: Path) -> Held:
    server = plumb.child(os.getpid(), "services.sandbox")
    family = [server, *server.children(recursive=True)]
    memory, files = 0, 0
    namespaces: dict[Path, Path] = {}
    for member in family:
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            memory += member.memory_info().rss
            files += member.num_fds()
            proc = Path(f"/proc/{member.pid}")
            namespaces.setdefault((proc / "ns/mnt").readlink(), proc)
    return Held(
        memory=memory / 1e6,
        open_files=files,
        processes=len(family),
        mounts=sum(_mounts(proc) for proc in namespaces.values()),
        temporary=_entries(root),
        private=sum(_entries(folder) for folder in _private_folders(family)),
        shared=_entries(Path("/dev/shm")),
        ipc=sum(_objects(kind) for kind in ("shm", "sem", "msg")),
    )


def _private_folders(family: Sequence[psutil.Process]) -> list[Path]:
    found: dict[tuple[int, int], Path] = {}
    for name in ("tmp", "dev/shm"):
        machine = _identity(Path("/", name))
        for member in family:
            folder = Path(f"/proc/{member.pid}/root", name)
            with suppress(OSError):
                if (identity := _identity(folder)) != machine:
                    found[identity] = folder
    return list(found.values())


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _mounts(proc: Path) -> int:
    try:
        return len((proc / "mountinfo").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.rglob("*"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _objects(kind: str) -> int:
    table = Path("/proc/sysvipc", kind)
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


if __name__ == "__main__":
    main()
