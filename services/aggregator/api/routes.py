"""HTTP handlers of the API; SQLite and Redis are accessed in a thread pool."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from redis import Redis
from redis.exceptions import RedisError

from services.aggregator.api import answers
from services.aggregator.api.events import ProgressEvents, TooManyStreamsError
from services.aggregator.api.models import (
    CasesQuery,
    RunList,
    RunSummary,
    SamplePage,
    SamplesQuery,
)
from services.aggregator.api.openapi import ROUTES, document
from services.aggregator.index.database import Database
from services.aggregator.index.overview import (
    FiguresCache,
    IndexedRun,
    all_runs,
    find_run,
    timeline,
)
from services.aggregator.index.pages import CursorError, SampleQuery, samples_page
from shared.ledger import Ledger, fail_fast
from shared.schemas import SampleId, describe, is_encodable
from shared.service.logs import get_logger
from shared.service.server import Handler, json_error, json_http_errors

log = get_logger(__name__)

_THREADS = 8
_LISTED_RUNS = 20
_SAMPLE_INDEX = re.compile(r"[0-9]{1,9}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

T = TypeVar("T")
Query = TypeVar("Query", bound=BaseModel)
RunReader = Callable[[sqlite3.Connection, IndexedRun], T]


def add_api(app: web.Application, redis: Redis, database: Database, events: ProgressEvents) -> None:
    """Add routes, JSON errors, response headers, and the clean-up at shutdown."""
    app.middlewares.extend([json_http_errors(), _unavailable_stores])
    app.on_response_prepare.append(_add_headers)
    api = _Api(redis, database, events)
    for route in ROUTES:
        # aiohttp's default pattern rejects braces in a path segment.
        app.router.add_get(route.path.replace("}", ":[^/]+}"), getattr(api, route.name))
    app.on_shutdown.append(api.end_streams)
    app.cleanup_ctx.append(api.lifetime)


class _Api:
    def __init__(self, redis: Redis, database: Database, events: ProgressEvents) -> None:
        self._redis = fail_fast(redis)
        self._database = database
        self._figures = FiguresCache()
        self._events = events
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")

    async def lifetime(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._redis.close()

    async def end_streams(self, _app: web.Application) -> None:
        self._events.end()

    async def list_runs(self, _request: web.Request) -> web.Response:
        def read() -> RunList:
            with self._database.read() as connection:
                runs = all_runs(connection)
                return RunList({run.run: answers.run_summary(connection, run) for run in runs})

        return _answer(await self._in_thread(read))

    async def show_run(self, request: web.Request) -> web.Response:
        return _answer(
            await self._read(request, lambda db, run: answers.run_detail(db, run, self._figures))
        )

    async def list_samples(self, request: web.Request) -> web.Response:
        query = _samples_query(request)

        def read(connection: sqlite3.Connection, run: IndexedRun) -> SamplePage:
            page = samples_page(connection, run.id, query)
            return SamplePage(samples=page.rows, next_cursor=page.next)

        try:
            return _answer(await self._read(request, read))
        except CursorError as error:
            raise _bad_request(f"cursor: {error}") from None

    async def show_sample(self, request: web.Request) -> web.Response:
        run, sample = request.match_info["run"], _sample(request)
        await self._read(request, lambda _db, _run: None)  # 404 for an unknown run
        found = await self._in_thread(
            lambda: answers.sample_detail(Ledger(self._redis, run), sample)
        )
        if found is None:
            raise _not_found(f"run {run!r} has no sample {sample.key}")
        return _answer(found)

    async def list_cases(self, request: web.Request) -> web.Response:
        run, sample = request.match_info["run"], _sample(request)
        query = _query(request, CasesQuery)
        await self._read(request, lambda _db, _run: None)  # 404 for an unknown run
        found = await self._in_thread(
            lambda: answers.case_page(Ledger(self._redis, run), sample, query)
        )
        if found is None:
            raise _not_found(f"run {run!r} has no sample {sample.key}")
        return _answer(found)

    async def show_timeline(self, request: web.Request) -> web.Response:
        return _answer(
            await self._read(request, lambda db, run: answers.timeline_answer(timeline(db, run.id)))
        )

    async def follow_run(self, request: web.Request) -> web.StreamResponse:
        await self._read(request, lambda _db, _run: None)

        async def read() -> RunSummary | None:
            try:
                return await self._read(request, answers.run_summary)
            except web.HTTPNotFound:
                return None

        try:
            return await self._events.stream(request, read)
        except TooManyStreamsError as error:
            return _unavailable(f"{error}; poll /api/runs instead")

    async def describe(self, _request: web.Request) -> web.Response:
        return web.json_response(document())

    async def _read(self, request: web.Request, read: RunReader[T]) -> T:
        """Read the run named in the path from one snapshot of the index."""
        name = request.match_info["run"]

        def work() -> T:
            with self._database.read() as connection:
                run = find_run(connection, name) if is_encodable(name) else None
                if run is None:
                    raise _unknown_run(name, connection)
                return read(connection, run)

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _answer(model: BaseModel) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type="application/json")


def _query(request: web.Request, model: type[Query]) -> Query:
    fields = dict(request.query)
    if twice := sorted({name for name in request.query if len(request.query.getall(name)) > 1}):
        raise _bad_request(f"{twice[0]}: given more than once")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _bad_request(describe(error)) from None


def _samples_query(request: web.Request) -> SampleQuery:
    query = _query(request, SamplesQuery)
    texts = (query.dataset, query.q, query.tag, query.difficulty, query.cursor)
    if not all(is_encodable(text) for text in texts if text is not None):
        raise _bad_request("a parameter is not UTF-8")
    given = query.model_dump(exclude={"q"})
    return SampleQuery(**given, text=query.q)


def _sample(request: web.Request) -> SampleId:
    dataset, problem, index = (
        request.match_info[name] for name in ("dataset", "problem_id", "sample_index")
    )
    if not _SAMPLE_INDEX.fullmatch(index):
        raise _not_found(f"{index[:50]!r} is not a sample index")
    if not is_encodable(dataset + problem):
        raise _not_found("the path is not UTF-8")
    return SampleId(dataset, problem, int(index))


# Errors: the body of every response with a status of 400 or above is ``{"error": …}``.


@web.middleware
async def _unavailable_stores(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 503 while Redis or the index is unavailable."""
    try:
        return await handler(request)
    except RedisError as error:
        log.warning("Redis unavailable for a request", reason=str(error))
        return _unavailable("Redis is unavailable; try again")
    except sqlite3.OperationalError as error:
        log.warning("index unavailable for a request", reason=str(error))
        return _unavailable("the index is unavailable; try again")


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to sniff, cache or execute a response; the page's headers take precedence."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def _unknown_run(name: str, connection: sqlite3.Connection) -> web.HTTPNotFound:
    names = [run.run for run in all_runs(connection)]
    shown = ", ".join(names[:_LISTED_RUNS]) + (", …" if len(names) > _LISTED_RUNS else "")
    return _not_found(f"no run {name[:200]!r}; " + (f"there are: {shown}" if names else "none yet"))


def _bad_request(reason: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=_body(reason), content_type="application/json")


def _not_found(reason: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=_body(reason), content_type="application/json")


def _unavailable(reason: str) -> web.Response:
    return json_error(503, reason, headers={"Retry-After": "2"})


def _body(reason: str) -> str:
    return json.dumps({"error": reason})
