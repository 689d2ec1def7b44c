"""kill -9 in the middle of indexing: afterwards nothing is missing and nothing counted twice."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.fold import Runs
from services.aggregator.index import open_database
from services.aggregator.index.overview import all_runs
from services.aggregator.index.pages import Question, samples_page
from shared.ledger import Ledger
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, judge
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, problem, verdict

_SAMPLES = 1500
_CHILD = """
import sys
from pathlib import Path
from redis import Redis
from services.aggregator import fold
from services.aggregator.index import open_database
fold._BATCH = 5
runs = fold.Runs(Redis.from_url(sys.argv[1]), open_database(Path(sys.argv[2])))
while True:
    runs.catch_up()
"""


def fill(ledger: Ledger, chance: random.Random) -> dict[SampleId, FinalStatus]:
    truth = {}
    for number in range(_SAMPLES):
        sample = SampleId("d1", f"p{number % 300}", number // 300)
        status = chance.choice(list(FinalStatus))
        judge(ledger, sample, status, {"output_tokens": 1})
        if status is FinalStatus.API_ERROR and chance.random() < 0.5:
            ledger.rejudge(sample, generation(sample).completion_sha256)
            status = FinalStatus.TIMEOUT
            ledger.record_verdict(verdict(generation(sample, output_tokens=1), status))
        truth[sample] = status
    return truth


def indexed(folder: Path) -> int:
    """How many entries of the stream the index has; -1 before there is one."""
    path = folder / "index.sqlite"
    if not path.exists():
        return -1
    with closing(sqlite3.connect(path)) as connection:
        try:
            row = connection.execute("SELECT events FROM runs").fetchone()
        except sqlite3.OperationalError:
            return -1
    return -1 if row is None else row[0]


def killed_in_the_middle(url: str, folder: Path, chance: random.Random) -> int:
    """Let a child index some more, kill it, and return how far it came."""
    before = indexed(folder)
    child = subprocess.Popen([sys.executable, "-c", _CHILD, url, str(folder)])
    while indexed(folder) <= before:
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(chance.random() * 0.03)
    child.kill()
    child.wait()
    return indexed(folder)


@pytest.mark.timeout(180)
def test_killed_again_and_again(redis: Redis, redis_server: RedisServer, tmp_path: Path) -> None:
    chance = random.Random(3)
    ledger = begin(redis, [problem(f"p{n}") for n in range(300)])
    truth = fill(ledger, chance)
    total = redis.xlen("plumbline:run:run-1:events")
    ends = [killed_in_the_middle(redis_server.url, tmp_path, chance) for _ in range(8)]
    assert 0 < ends[0] < ends[-1] < total
    database = open_database(tmp_path)
    Runs(redis, database).catch_up()
    with database.read() as connection:
        (run,) = all_runs(connection)
        rows = samples_page(connection, run.id, Question(limit=10_000)).rows
        counters = {
            (metric, label): value
            for metric, _, label, value in connection.execute("SELECT * FROM counters")
        }
    database.close()
    assert {
        SampleId(r.dataset, r.problem_id, r.sample_index): r.final_status for r in rows
    } == truth
    assert run.events == total > _SAMPLES
    events: dict[str, int] = {}
    for event in _all_events(ledger):
        events[event.status.value] = events.get(event.status.value, 0) + 1
    assert {label: n for (metric, label), n in counters.items() if metric == "verdicts"} == events
    assert counters["output_tokens_sum", ""] == _SAMPLES


def _all_events(ledger: Ledger):
    after = "0"
    while found := ledger.events(after):
        yield from found
        after = found[-1].entry
