"""Entry point of the aggregator: index verdicts, publish finished runs, serve API and page."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web
from pydantic import ValidationError
from redis import Redis

from services.aggregator.app import make_app, repeat
from services.aggregator.folders import RunFolders
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.settings import AggregatorSettings, OutputRoots
from shared.analysis.gate import default_policy
from shared.errors import OutputError
from shared.ledger import list_runs, wait_for_redis
from shared.schemas import describe
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.processes import run_service, with_watch
from shared.service.server import serve

log = get_logger(__name__)

_INTERVAL = 0.2  # seconds between two checks for new stream entries
_SEARCH_INTERVAL = 5.0  # seconds between two searches for finished runs


def main() -> int:
    return run_service("aggregator", AggregatorSettings, _run)


def _run(settings: AggregatorSettings) -> None:
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
    asyncio.run(aggregate(settings, redis, partial(serve, settings=settings)))


async def aggregate(
    settings: AggregatorSettings,
    redis: Redis,
    serve_page: Callable[[web.Application], Awaitable[None]],
) -> None:
    """Index verdicts and publish runs while ``serve_page`` serves the page."""
    policy = default_policy(settings.gate_policy)
    database = open_database(settings.index_dir)
    ingester = Ingester(redis, database)
    in_ledger = partial(list_runs, redis)
    folders = RunFolders(settings.roots.urls, database, in_ledger=in_ledger)
    access = Access(settings.hosts, settings.bearer, page=True)
    app = make_app(redis, ingester, folders=folders, access=access, policy=policy)

    async def work() -> None:
        await asyncio.gather(
            repeat(ingester.catch_up, _INTERVAL),
            repeat(partial(publish_due, ingester, settings.roots), _INTERVAL),
            repeat(folders.refresh, _SEARCH_INTERVAL),
        )

    try:
        await with_watch(partial(serve_page, app), work)
    finally:
        ingester.stop()
        folders.stop()
    # Skipped if the work failed: another thread may still use the database.
    database.close()


def publish_due(ingester: Ingester, roots: OutputRoots | None = None) -> bool:
    """Publish all runs that are judged completely; return whether there were any."""
    # Imported by the first call, in a thread beside the server that has started: numpy takes long.
    from services.aggregator.publish import publish

    due = list(ingester.unpublished())
    for ledger in due:
        try:
            publish(ledger, roots, ingester.index_of)
            log.info("published", run=ledger.run)
        except (OutputError, OSError) as error:
            log.error("cannot publish", run=ledger.run, reason=str(error))
            ledger.fail(str(error))
        except ValueError as error:
            log.exception("cannot publish", run=ledger.run)
            reason = describe(error) if isinstance(error, ValidationError) else str(error)[:500]
            ledger.fail(
                f"a record of run {ledger.run} in Redis cannot be read ({reason}); restore Redis' "
                "data, resume with the version of Plumbline that wrote it, or start over (--force)"
            )
    return bool(due)


if __name__ == "__main__":
    raise SystemExit(main())
