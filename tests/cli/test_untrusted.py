"""Untrusted runs, and `plumb doctor`, with a sandbox that has a fault."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.data.records import write_dataset
from tests.cli.commands import plumb
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import Fault, faulty
from tests.sandboxes import own_sandbox
from tests.shared import baselines
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import problem


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with own_sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url


@contextmanager
def with_fault(sandbox: str, fault: Fault) -> Iterator[str]:
    """The sandbox behind a proxy with a fault, which runs on a thread."""
    started, ended, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    urls: list[str] = []

    async def serve() -> None:
        async with faulty(sandbox, fault) as served:
            urls.append(served)
            started.set()
            await ended.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(30)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@pytest.mark.e2e
def test_a_run_with_a_faulty_sandbox_ends_untrusted(sandbox: str, tmp_path: Path) -> None:
    write_dataset(str(tmp_path / "d1.parquet"), [problem("p1")])
    answer = {"problem_id": "p1", "completion": "print(1)"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    inputs = ("--data", "d1.parquet", "--completions", "answers.jsonl", "--output", "out")
    with with_fault(sandbox, faults.NO_MEMORY_LIMIT) as url:
        done = plumb("judge", *inputs, "--embedded", folder=tmp_path, SANDBOX_URLS=url)
        # Also of a run that stopped early, the repeated command does not succeed.
        record = tmp_path / "out" / "run.json"
        stopped = {"outcome": "go", "rules": [], "policy": "", "baseline": "", "problems": 1}
        changed = json.loads(record.read_text()) | {"stopped": {**stopped, "planned": 2}}
        record.write_text(json.dumps(changed))
        again = plumb("judge", *inputs, "--embedded", folder=tmp_path, SANDBOX_URLS=url)
    assert done.code == again.code == 3, done.stderr + again.stderr
    assert f"plumb: untrusted: sandbox {url}: memory limit not enforced: 1190 MiB" in done.stderr
    assert "3 of 4 canary programs got the expected verdict" in done.stdout
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "untrusted"
    assert "untrusted: sandbox" in plumb("show", "out", folder=tmp_path).stdout
    assert "untrusted" in plumb("runs", ".", folder=tmp_path).stdout


@pytest.mark.e2e
def test_the_doctor_names_a_fault(sandbox: str, tmp_path: Path) -> None:
    with with_fault(sandbox, faults.cut_output(65536)) as url:
        done = plumb("doctor", "--embedded", folder=tmp_path, SANDBOX_URLS=url)
    assert done.code == 1, done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1
    assert f"sandbox {url}, batch python programs: output is cut or refused" in failed[0]


def test_an_untrusted_run_is_not_gated(tmp_path: Path) -> None:
    good = write_run(tmp_path / "a", {"d1": "++-"})
    finding = {"canary": "limits", "text": "memory limit not enforced: 2 GiB"}
    canaries = {"sandboxes": [baselines.sandbox(right=7, wrong=1, findings=[finding])]}
    bad = write_run(tmp_path / "b", {"d1": "+++"}, change={"canaries": canaries})
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: {max_new_failures: 3}\n")
    done = plumb("gate", good, bad, "--policy", str(policy), folder=tmp_path)
    assert done.code == 4
    assert "inconclusive: trusted" in done.line
    assert plumb("gate", good, good, "--policy", str(policy), folder=tmp_path).code == 0
    compared = plumb("compare", good, bad, folder=tmp_path)
    assert "B: untrusted: sandbox http://s1: memory limit not enforced" in compared.stdout
