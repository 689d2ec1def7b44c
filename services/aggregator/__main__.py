"""Entry point of the aggregator: index verdicts, publish finished runs, serve API and page."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web
from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.app import make_app
from services.aggregator.folders.watch import RunFolders
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.output_roots import OutputRoots
from services.aggregator.repeat import repeat
from services.aggregator.settings import AggregatorSettings
from shared.analysis.gate_policy import default_policy
from shared.errors import OutputError, ServiceError
from shared.ledger import connect_async, keys, list_runs, wait_for_redis
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.main import run_service
from shared.service.server import serve
from shared.service.tasks import cancel_and_wait

log = get_logger(__name__)

_SEARCH_INTERVAL = 5.0  # seconds between two searches for finished runs
_LISTEN_AGAIN = 5.0
_NOTICE_WAIT = 20.0  # less than the connection's own time-out


def main() -> int:
    return run_service("aggregator", AggregatorSettings, _run)


def _run(settings: AggregatorSettings) -> None:
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
    stop = asyncio.Event()
    asyncio.run(aggregate(settings, redis, stop, partial(serve, settings=settings, stop=stop)))


async def aggregate(
    settings: AggregatorSettings,
    redis: Redis,
    stop: asyncio.Event,
    serve_page: Callable[[web.Application], Awaitable[None]],
) -> None:
    """Index verdicts and publish runs while ``serve_page`` serves the page.

    ``stop`` is set if one of these tasks fails.
    """
    policy = default_policy(settings.gate_policy)
    database = open_database(settings.index_dir)
    ingester = Ingester(redis, database)
    in_ledger = partial(list_runs, redis)
    folders = RunFolders(settings.roots.urls, database, in_ledger=in_ledger)
    judged = asyncio.Event()

    def ingest() -> bool:
        database.require_intact()
        return ingester.catch_up()

    publish_all = partial(publish_due, ingester, settings.roots)
    tasks = [
        asyncio.create_task(repeat(ingest, settings.interval)),
        asyncio.create_task(repeat(publish_all, settings.interval, judged)),
        asyncio.create_task(repeat(folders.refresh, _SEARCH_INTERVAL)),
        asyncio.create_task(_listen(settings.redis_url, judged)),
    ]
    for task in tasks:
        task.add_done_callback(lambda _task: stop.set())
    try:
        access = Access(settings.hosts, settings.bearer, page=True)
        app = make_app(redis, ingester, folders=folders, access=access, policy=policy)
        await serve_page(app)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        ingester.stop()
        folders.stop()
        await cancel_and_wait(*tasks)
    # Skipped if a task crashed: another thread may still use the database.
    database.close()


async def _listen(redis_url: str, judged: asyncio.Event) -> None:
    """Set the event when a run is judged, so that it is published without a pause."""
    while True:
        try:
            async with await connect_async(redis_url) as redis, redis.pubsub() as notices:
                await notices.subscribe(keys.JUDGED)
                while True:
                    if await notices.get_message(True, timeout=_NOTICE_WAIT):
                        judged.set()
        except (RedisError, ServiceError) as error:
            log.warning("not notified of judged runs, only polling", reason=str(error))
        await asyncio.sleep(_LISTEN_AGAIN)


def publish_due(ingester: Ingester, roots: OutputRoots | None = None) -> bool:
    """Publish all runs that are judged completely; return whether there were any.

    Args:
        ingester: Knows the runs.
        roots: As of :func:`publish`.
    """
    # Imported by the first call, in a thread beside the server that has started: numpy takes long.
    from services.aggregator.publish import publish

    due = list(ingester.unpublished())
    for ledger in due:
        try:
            publish(ledger, roots)
            log.info("published", run=ledger.run)
        except OutputError as error:
            log.error("cannot publish", run=ledger.run, reason=str(error))
            ledger.fail(str(error))
        except ValueError as error:
            log.exception("cannot publish", run=ledger.run)
            ledger.fail(
                f"the run's records in Redis cannot be read ({str(error)[:500]}); restore Redis' "
                "data, or start the run over with --force"
            )
    return bool(due)


if __name__ == "__main__":
    raise SystemExit(main())
