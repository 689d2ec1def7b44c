"""``python -m services.aggregator``: fold verdicts, publish finished runs, serve metrics."""

import asyncio
import sys

from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.app import make_app
from services.aggregator.fold import Runs
from services.aggregator.publish import publish
from services.aggregator.settings import AggregatorSettings
from shared.errors import OutputError, PlumblineError
from shared.http import serve
from shared.ledger import connect
from shared.logs import configure_logging, get_logger
from shared.settings import load_settings

log = get_logger(__name__)


def main() -> int:
    try:
        settings = load_settings(AggregatorSettings)
        configure_logging("aggregator", settings.log_level)
        asyncio.run(_serve(settings, connect(settings.redis_url, patience=60)))
    except (PlumblineError, OSError) as error:
        log.error("stopped by an error", reason=str(error))
        print(f"aggregator: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(settings: AggregatorSettings, redis: Redis) -> None:
    runs = Runs(redis)
    stop = asyncio.Event()
    folding = asyncio.create_task(_fold_for_ever(runs, settings.interval))
    folding.add_done_callback(lambda _task: stop.set())
    try:
        await serve(make_app(redis, runs), host=settings.host, port=settings.port, stop=stop)
        if folding.done():
            folding.result()
    finally:
        folding.cancel()


async def _fold_for_ever(runs: Runs, interval: float) -> None:
    while True:
        try:
            busy = await asyncio.to_thread(runs.catch_up)
            await asyncio.to_thread(_publish_all, runs)
        except RedisError as error:
            log.error("Redis does not answer, trying again", reason=str(error))
            busy = False
        if not busy:
            await asyncio.sleep(interval)


def _publish_all(runs: Runs) -> None:
    for fold in runs.unpublished():
        try:
            publish(fold.ledger)
            log.info("published", run=fold.ledger.run)
        except OutputError as error:
            log.error("cannot publish", run=fold.ledger.run, reason=str(error))
            fold.ledger.set_meta(publish_error=str(error), state="failed")


if __name__ == "__main__":
    raise SystemExit(main())
