"""Entry point of the aggregator: index verdicts, publish finished runs, serve API and page."""

import asyncio
import sqlite3
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.app import make_app
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.settings import AggregatorSettings
from shared.errors import OutputError, PlumblineError, ServiceError
from shared.ledger import wait_for_redis
from shared.service.health import refuse
from shared.service.logs import configure_logging, get_logger
from shared.service.server import serve
from shared.service.settings import load_settings

log = get_logger(__name__)


def main() -> int:
    configure_logging("aggregator")
    try:
        settings = load_settings(AggregatorSettings)
        configure_logging("aggregator", settings.log_level)
        redis = wait_for_redis(settings.redis_url, settings.host, settings.port)
        asyncio.run(_serve(settings, redis))
    except PlumblineError as error:
        return refuse("aggregator", error)
    except OSError as error:
        return refuse("aggregator", ServiceError(str(error)))
    return 0


async def _serve(settings: AggregatorSettings, redis: Redis) -> None:
    database = open_database(settings.index_dir)
    ingester = Ingester(redis, database)
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(_repeat(ingester.catch_up, settings.interval)),
        asyncio.create_task(_repeat(lambda: publish_due(ingester), settings.interval)),
    ]
    for task in tasks:
        task.add_done_callback(lambda _task: stop.set())
    try:
        await serve(make_app(redis, ingester), host=settings.host, port=settings.port, stop=stop)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        ingester.stop()
        for task in tasks:
            task.cancel()
    # Skipped if a task crashed: another thread may still use the database.
    database.close()


async def _repeat(work: Callable[[], bool], interval: float) -> None:
    """Run ``work`` in a thread forever; pause ``interval`` seconds after it found no work."""
    while True:
        try:
            busy = await asyncio.to_thread(work)
        except RedisError as error:
            log.error("Redis unavailable, retrying", reason=str(error))
            busy = False
        except sqlite3.OperationalError as error:
            log.error("the index cannot be written, retrying", reason=str(error))
            busy = False
        if not busy:
            await asyncio.sleep(interval)


def publish_due(ingester: Ingester) -> bool:
    """Publish all runs that are judged completely; return whether there were any."""
    # Imported by the first call, in a thread beside the server that has started: numpy takes long.
    from services.aggregator.publish import publish

    due = list(ingester.unpublished())
    for ledger in due:
        try:
            publish(ledger)
            log.info("published", run=ledger.run)
        except OutputError as error:
            log.error("cannot publish", run=ledger.run, reason=str(error))
            ledger.fail(str(error))
    return bool(due)


if __name__ == "__main__":
    raise SystemExit(main())
