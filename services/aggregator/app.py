"""The aggregator's HTTP side."""

from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from redis import Redis

from services.aggregator.api import add_api
from services.aggregator.fold import Runs
from services.aggregator.metrics import IndexCollector
from services.aggregator.page import add_page
from services.aggregator.queue_metrics import RedisCollector
from shared.ledger import ping_error
from shared.service.health import Readiness
from shared.service.server import add_operations


def make_app(redis: Redis, runs: Runs) -> web.Application:
    """``/healthz``, ``/readyz``, ``/metrics``, the API and the page."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(IndexCollector(runs.database))
    registry.register(RedisCollector(redis, runs.database))

    app = web.Application()
    add_operations(app, Readiness(partial(ping_error, redis)), registry)
    add_api(app, redis, runs.database)
    add_page(app)
    return app
