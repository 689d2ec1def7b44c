"""``kill -9`` while indexing: every verdict is ingested exactly once."""

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import all_runs
from services.aggregator.index.queries import SampleQuery
from services.aggregator.index.samples import samples_page
from services.aggregator.ingest import Ingester
from shared.ledger import Ledger, VerdictEvent
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, counted, judge
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, problem, verdict

_SAMPLES = 900
_CHILD = """
import sys
from pathlib import Path
from redis import Redis
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
database = open_database(Path(sys.argv[2]))
ingester = Ingester(Redis.from_url(sys.argv[1]), database, batch_size=5)
while True:
    ingester.catch_up()
"""


def fill(ledger: Ledger, chance: random.Random) -> dict[SampleId, FinalStatus]:
    truth = {}
    for number in range(_SAMPLES):
        sample = SampleId("d1", f"p{number % 300}", number // 300)
        status = chance.choice(list(FinalStatus))
        judge(ledger, sample, status, {"output_tokens": 1})
        if status is FinalStatus.API_ERROR and chance.random() < 0.5:
            ledger.rejudge([(sample, generation(sample).completion_sha256)])
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
    before = max(0, indexed(folder))
    child = subprocess.Popen([sys.executable, "-c", _CHILD, url, str(folder)])
    while indexed(folder) <= before:
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(chance.random() * 0.03)
    child.kill()
    child.wait()
    return indexed(folder)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_killed_again_and_again(redis: Redis, redis_server: RedisServer, tmp_path: Path) -> None:
    chance = random.Random(3)
    ledger = begin(redis, [problem(f"p{n}") for n in range(300)])
    truth = fill(ledger, chance)
    total = redis.xlen("plumbline:run:run-1:events")
    ends = [killed_in_the_middle(redis_server.url, tmp_path, chance) for _ in range(4)]
    assert 0 < ends[0] < ends[-1] < total
    database = open_database(tmp_path)
    last = Ingester(redis, database)
    last.catch_up()
    with database.read() as connection:
        (run,) = all_runs(connection)
        rows = samples_page(connection, run.id, SampleQuery.model_construct(limit=10_000)).samples
    database.close()
    assert {
        SampleId(r.dataset, r.problem_id, r.sample_index): r.final_status for r in rows
    } == truth
    assert run.events == total > _SAMPLES
    assert run.statuses == {"d1": Counter(truth.values())}
    assert run.accepted == {"d1": run.statuses["d1"][FinalStatus.SUCCESS]}
    # What the killed ones have indexed is not counted again.
    rest = _all_events(ledger)[ends[-1] :]
    expected = Counter(("d1", event.status.value) for event in rest)
    assert counted(last.metrics, "verdicts_total") == expected


def _all_events(ledger: Ledger) -> list[VerdictEvent]:
    events: list[VerdictEvent] = []
    while found := ledger.events(events[-1].entry if events else "0"):
        events += found
    return events
