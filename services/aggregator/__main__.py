"""``python -m services.aggregator``: index verdicts, publish finished runs, answer questions."""

import asyncio
import sqlite3
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.app import make_app
from services.aggregator.fold import Runs
from services.aggregator.index import open_database
from services.aggregator.publish import publish
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
    runs = Runs(redis, database)
    stop = asyncio.Event()
    working = [
        asyncio.create_task(_for_ever(runs.catch_up, settings.interval)),
        asyncio.create_task(_for_ever(lambda: _publish_all(runs), settings.interval)),
    ]
    for task in working:
        task.add_done_callback(lambda _task: stop.set())
    try:
        await serve(make_app(redis, runs), host=settings.host, port=settings.port, stop=stop)
        for task in working:
            if task.done():
                task.result()
    finally:
        runs.stop()
        for task in working:
            task.cancel()
    # Not where a bug ends us: a thread may be at work in there, and nothing is lost.
    database.close()


async def _for_ever(work: Callable[[], bool], interval: float) -> None:
    while True:
        try:
            busy = await asyncio.to_thread(work)
        except RedisError as error:
            log.error("Redis does not answer, trying again", reason=str(error))
            busy = False
        except sqlite3.OperationalError as error:
            log.error("the index cannot be written, trying again", reason=str(error))
            busy = False
        if not busy:
            await asyncio.sleep(interval)


def _publish_all(runs: Runs) -> bool:
    """Publish what is due; returns whether there was anything."""
    due = list(runs.unpublished())
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
