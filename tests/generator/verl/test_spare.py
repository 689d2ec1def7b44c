"""The spare host process: taken by a lost replica, replaced, left out where it is not wanted."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.generator.backends.verl import backend
from services.generator.backends.verl.backend import HostProcesses, VerlReplica, VerlReplicaFactory
from services.generator.backends.verl.child import Child
from services.generator.backends.verl.ray_cluster import RayCluster
from services.generator.backends.verl.self_check import SelfCheck
from shared.config import load_config
from shared.errors import ServiceError

# A host process of nothing: it writes down that it has its libraries, and then its replica.
HOST = """
import json, os, pathlib, sys, time
notes = pathlib.Path(os.environ["NOTES"])
spec = json.loads(sys.stdin.readline())
phase = {"kind": "phase", "phase": "imports", "seconds": 0.5, "ended": time.monotonic()}
print(json.dumps(phase), flush=True)
(notes / f"{os.getpid()}.imported").touch()
if line := sys.stdin.readline():
    replica = json.loads(line)
    taken = [replica["rank"], replica["generation"]]
    (notes / f"{os.getpid()}.replica").write_text(json.dumps(taken))
    facts = {"engine": "vllm", "versions": {}, "hardware": [], "config": {}, "environment": {},
             "model": {"architecture": "A", "context": 1, "vocabulary": 1, "config_sha256": "",
                       "weights": {}},
             "chat_template": "", "chat_template_sha256": ""}
    print(json.dumps({"kind": "ready", "url": "http://127.0.0.1:9", "facts": facts, "shm": []}),
          flush=True)
    sys.stdin.readline()
"""
CONFIG = load_config(None, ["generation.verl.ray_address=127.0.0.1:9"])


class Notes:
    """What the host processes have written down, by process id, and how many were started.

    A replica is started once it has passed one of ``checks``.
    """

    def __init__(self, folder: Path, checks: asyncio.Semaphore) -> None:
        self._folder = folder
        self.checks = checks
        self.starts = 0

    @property
    def imported(self) -> set[int]:
        return {int(path.stem) for path in self._folder.glob("*.imported")}

    @property
    def replicas(self) -> dict[int, list[int]]:
        found = self._folder.glob("*.replica")
        return {int(path.stem): json.loads(path.read_text()) for path in found}

    async def have_imported(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.imported) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    (tmp_path / "a_host.py").write_text(HOST)
    monkeypatch.setenv("NOTES", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(backend, "_HOST_MODULE", "a_host")

    checks = asyncio.Semaphore(100)

    async def trained(*_: object) -> SelfCheck:
        await checks.acquire()
        return SelfCheck(mean_logprob=-1, order_preference=0.9, tokens=200, chance=None)

    monkeypatch.setattr(backend, "check_self", trained)
    starts = Child.start
    found = Notes(tmp_path, checks)

    async def counted(child: Child) -> None:
        found.starts += 1
        await starts(child)

    monkeypatch.setattr(Child, "start", counted)
    return found


Make = Callable[[bool], VerlReplicaFactory]


@pytest.fixture
async def make(notes: Notes) -> AsyncIterator[Make]:
    made: list[VerlReplicaFactory] = []

    def factory(keeps_spare: bool) -> VerlReplicaFactory:
        hosts = HostProcesses(CONFIG, keeps_spare=keeps_spare)
        made.append(VerlReplicaFactory(CONFIG, hosts, RayCluster(CONFIG)))
        return made[-1]

    yield factory
    for one in made:
        await one.close()


def pid(replica: VerlReplica) -> int:
    found = replica.describe()["host_pid"]
    assert isinstance(found, int)
    return found


async def test_a_lost_replica_starts_in_the_process_that_has_its_libraries(
    make: Make, notes: Notes
) -> None:
    factory = make(True)
    first = await factory.start(0, 0)
    await notes.have_imported(2)
    spare = notes.imported - {pid(first)}
    await first.stop()
    again = await factory.start(0, 1)
    assert {pid(again)} == spare
    assert first.start_seconds["imports"] > again.start_seconds["imports"] == 0.0
    assert notes.replicas == {pid(first): [0, 0], pid(again): [0, 1]}
    await notes.have_imported(3)  # the next spare
    await again.stop()
    await factory.close()
    assert not [pid for pid in notes.imported if _alive(pid)]


async def test_no_spare_is_started_beside_replicas_that_are_starting(
    make: Make, notes: Notes
) -> None:
    factory = make(True)
    for _ in range(99):
        await notes.checks.acquire()
    starts = [asyncio.create_task(factory.start(rank, 0)) for rank in range(2)]
    (first,), _ = await asyncio.wait(starts, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert notes.starts == 2
    notes.checks.release()
    replicas = await asyncio.gather(*starts)
    await notes.have_imported(3)
    assert first.result() in replicas
    await asyncio.gather(*(one.stop() for one in replicas))


async def test_a_spare_that_has_died_is_replaced(make: Make, notes: Notes) -> None:
    factory = make(True)
    first = await factory.start(0, 0)
    await notes.have_imported(2)
    (spare,) = notes.imported - {pid(first)}
    os.kill(spare, 9)
    async with asyncio.timeout(20):
        while _alive(spare):
            await asyncio.sleep(0.01)
    again = await factory.start(1, 0)
    assert pid(again) not in (spare, pid(first))
    await asyncio.gather(first.stop(), again.stop())


async def test_a_service_without_a_spare_has_none(make: Make, notes: Notes) -> None:
    factory = make(False)
    first = await factory.start(0, 0)
    await first.stop()
    again = await factory.start(0, 1)
    await again.stop()
    assert notes.imported == {pid(first), pid(again)}
    assert notes.starts == 2


async def test_a_spare_that_cannot_be_started_costs_no_replica(
    make: Make, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = make(True)
    starts = Child.start
    calls: list[object] = []

    async def second_fails(child: Child) -> None:
        calls.append(child)
        if len(calls) == 2:
            raise ServiceError("no room")
        await starts(child)

    monkeypatch.setattr(Child, "start", second_fails)
    first = await factory.start(0, 0)
    again = await factory.start(1, 0)
    assert len({pid(first), pid(again)}) == 2
    await asyncio.gather(first.stop(), again.stop())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
