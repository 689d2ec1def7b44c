"""The handlers. What they ask of files and Redis is done in threads of their own."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from redis import Redis

from services.aggregator.api import answers
from services.aggregator.api.events import ProgressEvents
from services.aggregator.api.failures import add_headers, bad_request, explain, not_found
from services.aggregator.api.models import RunList, RunSummary, SamplePage, SamplesQuery
from services.aggregator.api.openapi import ROUTES, document
from services.aggregator.index import Database
from services.aggregator.index.figures import Figures
from services.aggregator.index.overview import IndexedRun, all_runs, find_run, timeline
from services.aggregator.index.pages import CursorError, Question, samples_page
from shared.ledger import Ledger, fail_fast
from shared.schemas import SampleId, describe, is_encodable

_THREADS = 8
_NAMED = 20
_INDEX = re.compile(r"[0-9]{1,9}")

T = TypeVar("T")
Ask = Callable[[sqlite3.Connection, IndexedRun], T]


def add_api(app: web.Application, redis: Redis, database: Database) -> None:
    """Add the routes, what every answer carries, and the clean-up at the end."""
    app.middlewares.append(explain)
    app.on_response_prepare.append(add_headers)
    api = _Api(redis, database)
    for route in ROUTES:
        # By itself aiohttp takes no braces in a name.
        app.router.add_get(route.path.replace("}", ":[^/]+}"), getattr(api, route.name))
    app.on_shutdown.append(api.end_streams)
    app.cleanup_ctx.append(api.life)


class _Api:
    def __init__(self, redis: Redis, database: Database) -> None:
        self._redis = fail_fast(redis)
        self._database = database
        self._figures = Figures()
        self._events = ProgressEvents()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")

    async def life(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._redis.close()

    async def end_streams(self, _app: web.Application) -> None:
        self._events.end()

    async def list_runs(self, _request: web.Request) -> web.Response:
        def ask() -> RunList:
            with self._database.read() as connection:
                runs = all_runs(connection)
                return RunList({run.run: answers.run_summary(connection, run) for run in runs})

        return _answer(await self._in_thread(ask))

    async def show_run(self, request: web.Request) -> web.Response:
        return _answer(
            await self._ask(request, lambda db, run: answers.run_detail(db, run, self._figures))
        )

    async def list_samples(self, request: web.Request) -> web.Response:
        question = _question(request)

        def ask(connection: sqlite3.Connection, run: IndexedRun) -> SamplePage:
            page = samples_page(connection, run.id, question)
            return SamplePage(samples=page.rows, next_cursor=page.next)

        try:
            return _answer(await self._ask(request, ask))
        except CursorError as error:
            raise bad_request(f"cursor: {error}") from None

    async def show_sample(self, request: web.Request) -> web.Response:
        run, sample = request.match_info["run"], _sample(request)
        await self._ask(request, lambda _db, _run: None)  # 404 for a run that is not there
        found = await self._in_thread(
            lambda: answers.sample_detail(Ledger(self._redis, run), sample)
        )
        if found is None:
            raise not_found(f"run {run!r} has no sample {sample.key}")
        return _answer(found)

    async def show_timeline(self, request: web.Request) -> web.Response:
        return _answer(
            await self._ask(request, lambda db, run: answers.timeline_answer(timeline(db, run.id)))
        )

    async def follow_run(self, request: web.Request) -> web.StreamResponse:
        await self._ask(request, lambda _db, _run: None)

        async def look() -> RunSummary | None:
            try:
                return await self._ask(request, answers.run_summary)
            except web.HTTPNotFound:
                return None

        return await self._events.stream(request, look)

    async def describe(self, _request: web.Request) -> web.Response:
        return web.json_response(document())

    async def _ask(self, request: web.Request, ask: Ask[T]) -> T:
        """Ask about the run that the path names, in one view of the index."""
        name = request.match_info["run"]

        def work() -> T:
            with self._database.read() as connection:
                run = find_run(connection, name) if is_encodable(name) else None
                if run is None:
                    raise _unknown_run(name, connection)
                return ask(connection, run)

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _answer(model: BaseModel) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type="application/json")


def _unknown_run(name: str, connection: sqlite3.Connection) -> web.HTTPNotFound:
    names = [run.run for run in all_runs(connection)]
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return not_found(f"no run {name[:200]!r}; " + (f"there are: {shown}" if names else "none yet"))


def _question(request: web.Request) -> Question:
    fields = dict(request.query)
    if twice := sorted({name for name in request.query if len(request.query.getall(name)) > 1}):
        raise bad_request(f"{twice[0]}: given more than once")
    try:
        query = SamplesQuery.model_validate(fields)
    except ValidationError as error:
        raise bad_request(describe(error)) from None
    texts = (query.dataset, query.q, query.tag, query.difficulty, query.cursor)
    if not all(is_encodable(text) for text in texts if text is not None):
        raise bad_request("a parameter is not UTF-8")
    given = query.model_dump(exclude={"q"})
    return Question(**given, text=query.q)


def _sample(request: web.Request) -> SampleId:
    dataset, problem, index = (
        request.match_info[name] for name in ("dataset", "problem_id", "sample_index")
    )
    if not _INDEX.fullmatch(index):
        raise not_found(f"{index[:50]!r} is no sample index")
    if not is_encodable(dataset + problem):
        raise not_found("the path is not UTF-8")
    return SampleId(dataset, problem, int(index))
