"""The aggregator's HTTP side."""

import asyncio
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from redis import Redis

from services.aggregator.fold import RunFold, Runs
from services.aggregator.metrics import LedgerCollector
from shared.ledger import JudgeQueue, trouble


def make_app(redis: Redis, runs: Runs) -> web.Application:
    """``/healthz``, ``/readyz``, ``/metrics`` and ``/api/runs``."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(LedgerCollector(runs, JudgeQueue(redis)))

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        if reason := await asyncio.to_thread(trouble, redis):
            return web.json_response({"ready": False, "reason": reason}, status=503)
        return web.json_response({"ready": True})

    async def metrics(_request: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def list_runs(_request: web.Request) -> web.Response:
        folds = runs.all()
        return web.json_response({name: _progress(fold) for name, fold in sorted(folds.items())})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/api/runs", list_runs)
    return app


def _progress(fold: RunFold) -> dict[str, Any]:
    datasets: dict[str, dict[str, int]] = {}
    for (dataset, status), count in fold.counts().items():
        datasets.setdefault(dataset, {})[status.value] = count
    return {"verdicts": len(fold.statuses), "datasets": datasets}
