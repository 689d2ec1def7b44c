"""The aggregator as a process: signals, restart, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

from redis import Redis

from shared.run_record import RunState
from shared.schemas import SampleId
from tests.aggregator.process import Aggregator
from tests.aggregator.runs import begin, judge
from tests.conftest import RedisServer
from tests.page.compared import until_known
from tests.shared.ledgers import problem, put_meta
from tests.waiting import until


def test_it_ends_for_a_damaged_index_and_builds_it_again(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    judge(begin(redis, [problem("p1")], output=str(tmp_path / "out")), SampleId("d1", "p1"))
    index = tmp_path / "index"

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = Aggregator(redis_server.url, tmp_path / "first", PLUMBLINE_INDEX_DIR=str(index))
    until_known(first.url, "run-1")
    file = index / "index.sqlite"
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (file.stat().st_size - 4096))
    (index / "index.sqlite-wal").write_bytes(b"")
    judge(begin(redis, [problem("p2")], run="run-2"), SampleId("d1", "p2"))
    assert first.wait() == 2
    said = first.log.read_text()
    assert "the index is damaged" in said
    assert "Traceback" not in said
    second = Aggregator(redis_server.url, tmp_path / "second", PLUMBLINE_INDEX_DIR=str(index))
    until_known(second.url, "run-1")
    assert second.terminate() == 0


def test_it_publishes_though_the_index_cannot_be_written(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A full disk under the index costs its answers, not the artifacts."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from services.aggregator.__main__ import main; sys.exit(main())"
    )
    ledger = begin(redis, [problem(f"p{n}") for n in range(600)], output=str(tmp_path / "out"))
    for number in range(600):
        judge(ledger, SampleId("d1", f"p{number}"), detail="x" * 400)
    put_meta(ledger, plan={"datasets": []})
    environment = {"REDIS_URL": redis_server.url, "PORT": "0", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", limited],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("the index cannot be written" in line for line in process.stdout)
        ledger.set_state(RunState.JUDGED)
        until("the run is complete", lambda: ledger.state() is RunState.COMPLETE, 30, every=0.02)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
