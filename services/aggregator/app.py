"""HTTP application of the aggregator: health checks, metrics, JSON API, web page; repeated work."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.cases import Cases, folder_cases, ledger_cases
from services.aggregator.folders import RunFolders
from services.aggregator.index.database import Database, is_damage
from services.aggregator.index.overview import IndexedRun
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import AggregatorCollector
from services.aggregator.routes import add_api
from shared.analysis.gate import NamedPolicy
from shared.errors import ServiceError
from shared.ledger import Ledger, fail_fast, ping_error
from shared.schemas import SampleId
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.server import Readiness, add_operations, make_application

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
    *,
    folders: RunFolders | None = None,
    access: Access | None = None,
    policy: NamedPolicy | None = None,
) -> web.Application:
    """Create the application with ``/healthz``, ``/readyz``, ``/metrics``, API and page.

    ``folders`` are those whose finished runs are in the index, too; ``policy`` is the gate's, whose
    verdicts the page shows.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    asked = fail_fast(redis)
    registry.register(AggregatorCollector(redis, ingester.database, ingester.metrics))

    def read_cases(run: IndexedRun, sample: SampleId) -> Cases:
        if run.folder is not None:
            return folder_cases(run, sample)
        return ledger_cases(Ledger(asked, run.run), sample)

    async def close(_app: web.Application) -> None:
        asked.close()

    app = make_application(access or Access(page=True))
    add_operations(app, Readiness(partial(ping_error, redis)), registry)
    add_api(app, read_cases, ingester.database, folders=folders, policy=policy)
    app.on_cleanup.append(close)
    add_page(app)
    return app


def make_folders_app(
    database: Database,
    folders: RunFolders,
    *,
    access: Access | None = None,
    policy: NamedPolicy | None = None,
) -> web.Application:
    """Create the same application over the runs of folders alone, without metrics."""
    app = make_application(access or Access(page=True))
    add_operations(app, Readiness(), None)
    add_api(app, folder_cases, database, folders=folders, policy=policy)
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


log = get_logger(__name__)


async def repeat(work: Callable[[], object], interval: float) -> None:
    """Run ``work`` in a thread indefinitely, with a pause of ``interval`` seconds.

    The pause also follows work that found something: a hundred verdicts in one transaction cost
    little more than one.
    """
    while True:
        try:
            await asyncio.to_thread(work)
        except RedisError as error:
            log.error("Redis unavailable, retrying", reason=str(error))
        except sqlite3.OperationalError as error:
            log.error("the index cannot be written, retrying", reason=str(error))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise ServiceError(
                f"the index is damaged ({error}); the next start builds it again, from Redis and "
                "from the folders of finished runs"
            ) from None
        await asyncio.sleep(interval)
