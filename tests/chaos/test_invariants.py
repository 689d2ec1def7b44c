"""Each invariant finds a violation of it that was planted in a folder without any."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import invariants
from tests.chaos.faults import alive
from tests.chaos.invariants import Invariant, Undisturbed
from tests.e2e import plumb
from tests.redis_files import latest_writes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("done") / "out"
    ended = plumb.plumb(plumb.demo_run(output, "data.limit=1"))
    assert ended.returncode == 0, ended.stderr
    return output


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "out")


def change(folder: Path, number: int, **values: object) -> None:
    """Change values of a verdict."""
    path = folder / "verdicts.jsonl"
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    path.write_text("\n".join(lines) + "\n")


def update(folder: Path, **values: object) -> None:
    """Change values of run.json."""
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def missummarize(folder: Path) -> None:
    path = folder / "phase0_summary.json"
    summary = json.loads(path.read_text())
    summary["humaneval"]["accepted_at_1"] = 0.5
    path.write_text(json.dumps(summary))


def lose(folder: Path) -> None:
    path = folder / "verdicts.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def double(folder: Path) -> None:
    path = folder / "verdicts.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[0])


def damage_index(folder: Path) -> None:
    with (folder / ".plumbline/index/index.sqlite").open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 4096)


def write_to_redis(folder: Path, *command: str) -> None:
    """Append a command to the append-only file."""
    path = latest_writes(folder)
    words = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
    with path.open("a", newline="") as file:
        file.write(f"*{len(command)}\r\n{words}")


def leave_job(folder: Path) -> None:
    write_to_redis(folder, "SELECT", "0")
    write_to_redis(folder, "HSET", "rq:job:x", "data", "x")


def leave_file(folder: Path) -> None:
    (folder / ".report.html.host.1.tmp").touch()


@pytest.mark.parametrize(
    ("plant", "invariant"),
    [
        (lose, Invariant.LOST),
        (double, Invariant.DOUBLED),
        (lambda folder: change(folder, 0, pass_ratio=0.123), Invariant.CHANGED),
        (lambda folder: update(folder, state="judged"), Invariant.PUBLISHED),
        (lambda folder: update(folder, sandbox_requests=999), Invariant.COUNTERS),
        (missummarize, Invariant.SUMMARY),
        (lambda folder: change(folder, 0, total_judge_time=123.0), Invariant.LEDGER),
        (damage_index, Invariant.INDEX),
        (leave_job, Invariant.HELD),
        (leave_file, Invariant.TEMPORARY),
    ],
)
def test_a_planted_violation_is_found(
    plant: Callable[[Path], None], invariant: Invariant, folder: Path, done: Path
) -> None:
    plant(folder)
    violations = invariants.published(folder, Undisturbed.of(done))
    assert invariant in {violation.invariant for violation in violations}


def test_a_folder_without_violations_has_none(folder: Path, done: Path) -> None:
    assert invariants.published(folder, Undisturbed.of(done)) == []
    assert invariants.unpublished(folder, Undisturbed.of(done)) == []


@pytest.mark.parametrize(
    ("program", "seconds", "violations"),
    [
        ("", 60.0, []),
        ("print('plumb: interrupted; repeat the command'); raise SystemExit(130)", 60.0, []),
        ("import os; os.kill(os.getpid(), 9)", 60.0, []),
        ("print('a word'); raise SystemExit(3)", 60.0, [Invariant.ANSWER]),
        ("raise SystemExit(2)", 60.0, [Invariant.ANSWER]),
        ("raise ValueError('a bug')", 60.0, [Invariant.ANSWER]),
        ("import os; os.abort()", 60.0, [Invariant.ANSWER]),
        ("import time; time.sleep(60)", 0.2, [Invariant.ANSWER]),
    ],
)
def test_a_command_that_ends_without_an_answer_or_hangs_is_found(
    program: str, seconds: float, violations: list[Invariant], tmp_path: Path
) -> None:
    log = tmp_path / "session-0.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=output, stderr=output, text=True
        )
    try:
        found = invariants.answered(process, log, seconds)
    finally:
        process.kill()
        process.wait()
    assert [violation.invariant for violation in found] == violations


def test_a_process_that_is_left_is_found_and_one_that_ends_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = alive()  # of other tests: their Redis, say
    monkeypatch.setattr(
        invariants, "alive", lambda: [process for process in alive() if process not in others]
    )
    short = subprocess.Popen(["sleep", "0.2"])
    assert invariants.nobody_left(60.0) == []
    short.wait()
    left = subprocess.Popen(["sleep", "60"])
    try:
        (lasting,) = invariants.nobody_left(0.1)
        assert (lasting.invariant, lasting.found) == (Invariant.PROCESSES, f"{left.pid} sleep 60")
    finally:
        os.kill(left.pid, 9)
        left.wait()
