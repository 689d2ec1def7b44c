"""Helpers that fill a run or an index, query the API, and read counters."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator.app import make_app
from services.aggregator.index.database import Database
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.search import put_texts
from services.aggregator.index.writer import KnownRun, put_row
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import IngestMetrics
from shared.case_records import SampleCases
from shared.extraction import extract
from shared.ledger import Ledger
from shared.run_record import make_plan
from shared.schemas import JudgedCode, Problem, SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import enter, generation, verdict


def begin(redis: Redis, problems: list[Problem], run: str = "run-1", **meta: Any) -> Ledger:
    """A running run that owes a sample of each problem."""
    plan = make_plan(problems, lambda _problem: range(1))
    ledger = Ledger(redis, run)
    enter(ledger, problems, plan, **meta)
    return ledger


def judge(
    ledger: Ledger,
    sample: SampleId,
    status: FinalStatus = FinalStatus.SUCCESS,
    made: Mapping[str, Any] | None = None,
    cases: SampleCases | None = None,
    **fields: Any,
) -> None:
    """Give a sample a completion (``made``) and a verdict (``fields``, with code and cases)."""
    completion = generation(sample, **(made or {}))
    ledger.record(completion)
    extraction = extract(completion.completion)
    fields = {"code": JudgedCode.of(extraction.code, extraction.reason, extraction.start), **fields}
    packed = cases and cases.packed()
    assert ledger.record_verdict(verdict(completion, status, **fields), packed)


@asynccontextmanager
async def served(redis: Redis, **options: Any) -> AsyncIterator[TestClient]:
    """An aggregator that has indexed the ledger; the options are those of ``make_app``."""
    ingester = Ingester(redis)
    ingester.catch_up()
    async with TestClient(TestServer(make_app(redis, ingester, **options))) as client:
        yield client
    ingester.stop()


async def ask(client: TestClient, path: str, status: int = 200) -> Any:
    """The JSON answer to a GET, whose status has to be ``status``."""
    async with client.get(path) as answer:
        body = await answer.json()
        assert answer.status == status, body
        return body


def counted(metrics: IngestMetrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of a counter that are not zero, by its labels in the order of their names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == f"plumbline_{name}" and sample.value
    }


def put(
    database: Database, run: KnownRun, rows: Iterable[SampleRow | tuple[SampleRow, tuple[str, str]]]
) -> None:
    """Write rows, with their texts, as those of a run."""
    with database.write() as connection:
        for sample in rows:
            row, texts = sample if isinstance(sample, tuple) else (sample, ("", ""))
            put_texts(connection, put_row(connection, run.id, row), texts)
        connection.execute("UPDATE runs SET version = version + 1 WHERE id = ?", (run.id,))
