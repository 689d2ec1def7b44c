"""Child processes of the service: messages, failures, causes, stop."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.generator.backends.verl.child import Child
from services.generator.backends.verl.messages import Cluster, ClusterReady
from services.generator.router.replica import NoPlacementError
from shared.errors import ConfigError, ServiceError

READY = '{"kind": "cluster", "address": "here"}'


@pytest.fixture
def children() -> list[Child]:
    return []


@pytest.fixture(autouse=True)
async def _ended(children: list[Child]) -> AsyncIterator[None]:
    yield
    for child in children:
        await child.stop(0.1)


async def started(children: list[Child], folder: Path, code: str) -> Child:
    (folder / "the_child.py").write_text("import os, signal, sys, time\n" + code)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    child = Child("the_child", "the child", environment)
    children.append(child)
    await child.start()
    return child


async def test_a_message_each_way(children: list[Child], tmp_path: Path) -> None:
    code = f"assert 'there' in sys.stdin.readline()\nprint({READY!r}, flush=True)\ntime.sleep(60)"
    child = await started(children, tmp_path, code)
    await child.send(Cluster(address="there", placement_timeout=1))
    assert await child.next_event() == ClusterReady(address="here")
    assert child.running
    await child.stop()
    assert not child.running


@pytest.mark.parametrize(
    ("line", "cause"), [("{}", "invalid event"), ("x" * (3 << 20), "too long")]
)
async def test_an_event_that_nobody_can_read_is_a_failure_of_the_child(
    children: list[Child], tmp_path: Path, line: str, cause: str
) -> None:
    """Its supervisor restarts it, as after any other failure."""
    child = await started(children, tmp_path, f"print({line!r}, flush=True)\ntime.sleep(60)")
    with pytest.raises(ServiceError, match=f"the child sent an .*{cause}|{cause}"):
        await asyncio.wait_for(child.next_event(), 20)


async def test_a_death_is_reported_although_a_descendant_keeps_the_output_open(
    children: list[Child], tmp_path: Path
) -> None:
    code = (
        "import subprocess\n"
        "subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "print('the reason', file=sys.stderr, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    child = await started(children, tmp_path, code)
    with pytest.raises(ServiceError, match="ended with exit code -9: the reason"):
        await asyncio.wait_for(child.next_event(), 20)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, ServiceError),
        ({"refused": True}, ConfigError),
        ({"unplaced": True}, NoPlacementError),
    ],
)
async def test_what_a_child_reports_as_failed(
    children: list[Child], tmp_path: Path, fields: dict[str, bool], kind: type[Exception]
) -> None:
    failed = json.dumps({"kind": "failed", "reason": "no room", **fields})
    child = await started(children, tmp_path, f"print({failed!r})")
    with pytest.raises(kind, match="no room"):
        await child.next_event()


async def test_the_cause_is_taken_from_the_output(children: list[Child], tmp_path: Path) -> None:
    failed = '{"kind": "failed", "reason": "RuntimeError: Engine core initialization failed."}'
    code = (
        "for line in ('\\x1b[36m(EngineCore pid=7)\\x1b[0m ERROR 1-1 [core.py:1] '\n"
        "             'torch.cuda.OutOfMemoryError: CUDA out of memory. Tried 2 GiB',\n"
        "             'RuntimeError: Engine core initialization failed. See root cause above.'):\n"
        "    print(line, file=sys.stderr, flush=True)\n"
        f"time.sleep(0.3)\nprint({failed!r})"
    )
    child = await started(children, tmp_path, code)
    with pytest.raises(ServiceError, match="OutOfMemoryError: CUDA out of memory"):
        await child.next_event()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(3)", "exit code 3: no output"),
        ("print('so long', file=sys.stderr)", "exit code 0: so long"),
        ("raise ValueError('no such thing')", "exit code 1: ValueError: no such thing"),
    ],
)
async def test_a_child_that_ends(
    children: list[Child], tmp_path: Path, code: str, said: str
) -> None:
    child = await started(children, tmp_path, code)
    with pytest.raises(ServiceError, match=said):
        await child.next_event()


async def test_one_that_will_not_end_is_killed(children: list[Child], tmp_path: Path) -> None:
    code = f"signal.signal(15, signal.SIG_IGN)\nprint({READY!r}, flush=True)\ntime.sleep(60)"
    child = await started(children, tmp_path, code)
    await child.next_event()
    await child.stop(0.2)
    assert not child.running
    await child.stop()  # again: nothing happens


async def test_output_without_end_is_read_away(children: list[Child], tmp_path: Path) -> None:
    code = (
        "for _ in range(3000): print('x' * 100, file=sys.stderr)\n"
        "print('y' * 3_000_000, file=sys.stderr)\n"
        f"print({READY!r}, flush=True)\ntime.sleep(60)"
    )
    child = await started(children, tmp_path, code)
    assert await asyncio.wait_for(child.next_event(), 30) == ClusterReady(address="here")
