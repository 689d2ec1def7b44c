"""HTTP application of the aggregator: health checks, metrics, JSON API and web page."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from redis import Redis

from services.aggregator.api.events import ProgressEvents
from services.aggregator.api.routes import add_api
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import IndexCollector, RedisCollector
from shared.ledger import ping_error
from shared.service.access import Access
from shared.service.health import Readiness
from shared.service.server import add_operations, make_application

STATIC = Path(__file__).parent / "page" / "static"
_TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"
}  # fmt: skip
# Completions are untrusted text: only the page's own scripts may run.
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(
    redis: Redis,
    ingester: Ingester,
    events: ProgressEvents | None = None,
    *,
    access: Access | None = None,
) -> web.Application:
    """Create the application with ``/healthz``, ``/readyz``, ``/metrics``, API and page."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(IndexCollector(ingester.database, ingester.metrics))
    registry.register(RedisCollector(redis, ingester.database))

    app = make_application(access or Access(page=True))
    add_operations(app, Readiness(partial(ping_error, redis)), registry)
    add_api(app, redis, ingester.database, events or ProgressEvents())
    add_page(app)
    return app


def add_page(app: web.Application) -> None:
    """Add ``/`` and the static files of the page, which gets its data from the API."""
    for path in sorted(STATIC.iterdir()):
        route = "/" if path.name == "index.html" else f"/static/{path.name}"
        app.router.add_get(route, _file(path))


def _file(path: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    body, kind = path.read_bytes(), _TYPES[path.suffix]

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_PAGE_HEADERS)

    return serve
