"""The aggregator's HTTP side."""

import asyncio
from functools import partial

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from redis import Redis

from services.aggregator.api import add_api
from services.aggregator.fold import Runs
from services.aggregator.metrics import IndexCollector
from services.aggregator.page import add_page
from services.aggregator.queue_metrics import RedisCollector
from shared.ledger import ping_error
from shared.readiness import Readiness


def make_app(redis: Redis, runs: Runs) -> web.Application:
    """``/healthz``, ``/readyz``, ``/metrics``, the API and the page."""
    readiness = Readiness(partial(ping_error, redis))
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(IndexCollector(runs.database))
    registry.register(RedisCollector(redis, runs.database))

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        if reason := await asyncio.to_thread(readiness.trouble):
            return web.json_response({"ready": False, "reason": reason}, status=503)
        return web.json_response({"ready": True})

    async def metrics(_request: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    add_api(app, redis, runs.database)
    add_page(app)
    return app
