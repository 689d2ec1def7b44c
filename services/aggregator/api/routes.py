"""HTTP handlers of the API; SQLite and Redis are accessed in a thread pool."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError
from pydantic_core import to_json
from redis.exceptions import RedisError

from services.aggregator.api.runs import RunDetail, RunSummary, SampleDetail
from services.aggregator.cases import CasePage, ReadCases
from services.aggregator.comparison import (
    Comparisons,
    FlipPage,
    GateAnswer,
    flip_page,
    run_names,
)
from services.aggregator.folders.watch import FoldersStatus, RunFolders
from services.aggregator.index.across import Grid, ProblemAnswers, grid, problem_answers
from services.aggregator.index.database import Database, IndexDamagedError
from services.aggregator.index.history import (
    HistoryAnswer,
    TrendRun,
    history_answer,
    scores,
    trend_run,
)
from services.aggregator.index.overview import IndexedRun, all_figures, all_runs, find_run
from services.aggregator.index.performance import Performance, performance
from services.aggregator.index.queries import (
    CompareQuery,
    FailuresQuery,
    FlipsQuery,
    GateQuery,
    GridQuery,
    HistoryQuery,
    PageQuery,
    Query,
    SampleFilter,
    SampleQuery,
)
from services.aggregator.index.records import read_sample
from services.aggregator.index.run_cache import RunCache
from services.aggregator.index.samples import (
    Facets,
    FailureGroups,
    SamplePage,
    facets,
    failure_groups,
    samples_page,
)
from shared.analysis.compare import Comparison, ComparisonDocument, comparison_document
from shared.analysis.gate_policy import NamedPolicy
from shared.errors import DataError
from shared.schemas import SampleId, describe, is_encodable
from shared.service import openapi
from shared.service.logs import get_logger
from shared.service.openapi import Route
from shared.service.server import Handler, json_error

log = get_logger(__name__)

_MOST_TRENDS = 2000  # cached
_THREADS = 8
# Samples that are read at once: each may have many MiB, for which its thread keeps all others from
# running, the event loop too.
_READ_AT_ONCE = 2
_LISTED_RUNS = 20
_SAMPLE_INDEX = re.compile(r"[0-9]{1,9}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

T = TypeVar("T")
QueryT = TypeVar("QueryT", bound=Query)
RunReader = Callable[[sqlite3.Connection, IndexedRun], T]

_RUN = "/api/runs/{run}"
_SAMPLE = f"{_RUN}/samples/{{dataset}}/{{problem_id}}/{{sample_index}}"
ROUTES: tuple[Route, ...] = (
    Route("/api/runs", "list_runs", "All runs by id", dict[str, RunSummary]),
    Route("/api/folders", "list_folders", "Folders with finished runs", FoldersStatus),
    Route(_RUN, "show_run", "A run with config, facts and live figures", RunDetail),
    Route(f"{_RUN}/samples", "list_samples", "Judged samples", SamplePage, query=SampleQuery),
    Route(f"{_RUN}/facets", "count_choices", "Samples by each choice", Facets, query=SampleFilter),
    Route(f"{_RUN}/failures", "group_failures", "Failures", FailureGroups, query=FailuresQuery),
    Route(f"{_SAMPLE}/cases", "list_cases", "Recorded cases", CasePage, query=PageQuery),
    Route(_SAMPLE, "show_sample", "A sample with all of its texts", SampleDetail),
    Route(f"{_RUN}/performance", "show_performance", "Load over time", Performance),
    Route("/api/history", "show_history", "Runs by measurement", HistoryAnswer, query=HistoryQuery),
    Route("/api/gate", "show_gate", "The gate's verdict on a run", GateAnswer, query=GateQuery),
    Route("/api/compare", "compare_runs", "Compared runs", ComparisonDocument, query=CompareQuery),
    Route("/api/compare/flips", "list_flips", "Samples of two runs", FlipPage, query=FlipsQuery),
    Route("/api/compare/grid", "show_grid", "Problems by runs", Grid, query=GridQuery),
    Route(
        "/api/problems/{dataset}/{problem_id}",
        "show_problem",
        "A problem with the answers of all runs",
        ProblemAnswers,
    ),
    Route("/api/openapi.json", "describe", "This document"),
)


def add_api(
    app: web.Application,
    read_cases: ReadCases,
    database: Database,
    *,
    folders: RunFolders | None = None,
    policy: NamedPolicy | None = None,
) -> None:
    """Add routes, response headers, and the clean-up at shutdown.

    Args:
        app: The application.
        read_cases: Reads the recorded cases of a sample.
        database: The index.
        folders: Folders whose finished runs are in the index, too.
        policy: Policy of the gate, by which the page judges runs of one protocol.
    """
    app.middlewares.append(_unavailable_stores)
    app.on_response_prepare.append(_add_headers)
    api = _Api(read_cases, database, folders, policy)
    for route in ROUTES:
        # aiohttp's default pattern rejects braces in a path segment. A proxy may have decoded the
        # slash of a problem's id.
        path = route.path.replace("}", ":[^/]+}").replace("problem_id:[^/]+", r"problem_id:[\s\S]+")
        app.router.add_get(path, getattr(api, route.name))
    app.cleanup_ctx.append(api.lifetime)


class _Api:
    def __init__(
        self,
        read_cases: ReadCases,
        database: Database,
        folders: RunFolders | None,
        policy: NamedPolicy | None,
    ) -> None:
        self._read_cases = read_cases
        self._folders = folders
        self._database = database
        self._figures = RunCache(all_figures)
        self._performance = RunCache(performance)
        self._trends = RunCache(trend_run, most=_MOST_TRENDS)
        self._policy = policy.name if policy else None
        self._comparisons = Comparisons(policy)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")

    async def lifetime(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def list_runs(self, _request: web.Request) -> web.Response:
        def read(connection: sqlite3.Connection) -> dict[str, RunSummary]:
            runs = all_runs(connection)
            known = scores(self._trend_runs(connection, runs))
            return {run.run: RunSummary.of(run, known[run.run]) for run in runs}

        return _answer(await self._snapshot(read))

    async def list_folders(self, _request: web.Request) -> web.Response:
        return _answer(self._folders.status if self._folders else FoldersStatus())

    async def show_run(self, request: web.Request) -> web.Response:
        return _answer(
            await self._read(
                request, lambda db, run: RunDetail.of(db, run, self._figures.of(db, run))
            )
        )

    async def list_samples(self, request: web.Request) -> web.Response:
        query = _query(request, SampleQuery)

        return _answer(await self._read(request, lambda db, run: samples_page(db, run.id, query)))

    async def count_choices(self, request: web.Request) -> web.Response:
        wanted = _query(request, SampleFilter)

        return _answer(await self._read(request, lambda db, run: facets(db, run.id, wanted)))

    async def group_failures(self, request: web.Request) -> web.Response:
        query = _query(request, FailuresQuery)
        return _answer(await self._read(request, lambda db, run: failure_groups(db, run.id, query)))

    async def show_sample(self, request: web.Request) -> web.Response:
        sample = _sample(request)

        def read(connection: sqlite3.Connection, run: IndexedRun) -> bytes:
            found = SampleDetail.of(connection, run, sample)
            if found is None:
                raise _no_sample(run, sample)
            return to_json(found)  # in the thread: it may have many MiB

        async with self._reading:
            return _json(await self._read(request, read))

    async def list_cases(self, request: web.Request) -> web.Response:
        sample, query = _sample(request), _query(request, PageQuery)

        def read(connection: sqlite3.Connection, run: IndexedRun) -> IndexedRun:
            if read_sample(connection, run.id, sample) is None:
                raise _no_sample(run, sample)
            return run

        run = await self._read(request, read)
        async with self._reading:
            language = run.language(sample.dataset)
            found = await self._in_thread(
                lambda: CasePage.of(*self._read_cases(run, sample), query, language)
            )
        return _answer(found)

    async def show_performance(self, request: web.Request) -> web.Response:
        return _answer(await self._read(request, self._performance.of))

    async def show_history(self, request: web.Request) -> web.Response:
        query = _query(request, HistoryQuery)

        def read(connection: sqlite3.Connection) -> HistoryAnswer:
            runs = self._trend_runs(connection, all_runs(connection))
            return history_answer(runs, query.protocol, self._policy)

        try:
            return _answer(await self._snapshot(read))
        except LookupError:
            hint = "/api/history lists those that there are"
            raise _not_found(f"no run has the protocol {query.protocol!r}; {hint}") from None

    async def show_gate(self, request: web.Request) -> web.Response:
        query = _query(request, GateQuery)

        def read(connection: sqlite3.Connection) -> GateAnswer:
            baseline, run = (_found(connection, name) for name in (query.baseline, query.run))
            return self._comparisons.gate(connection, baseline, run)

        return _answer(await self._snapshot(read))

    async def compare_runs(self, request: web.Request) -> web.Response:
        names = run_names(_query(request, CompareQuery).runs)
        return _answer(
            await self._compare(
                names, lambda _db, compared, _runs: comparison_document(compared, flips=False)
            )
        )

    async def list_flips(self, request: web.Request) -> web.Response:
        query = _query(request, FlipsQuery)
        names = run_names(query.runs, most=2)
        return _answer(
            await self._compare(
                names, lambda db, compared, runs: flip_page(db, compared[0], runs, query)
            )
        )

    async def show_grid(self, request: web.Request) -> web.Response:
        query = _query(request, GridQuery)
        names = run_names(query.runs, least=1)
        return _answer(
            await self._snapshot(lambda db: grid(db, [_found(db, name) for name in names], query))
        )

    async def show_problem(self, request: web.Request) -> web.Response:
        problem = request.match_info["dataset"], request.match_info["problem_id"]
        if not is_encodable("".join(problem)):
            raise _not_found("the path is not UTF-8")
        found = await self._snapshot(lambda db: problem_answers(db, all_runs(db), problem))
        if found is None:
            raise _not_found(f"no run has an answer to {SampleId(*problem).key[:400]!r}")
        return _answer(found)

    async def describe(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.document("Plumbline aggregator", ROUTES))

    async def _read(self, request: web.Request, read: RunReader[T]) -> T:
        """Read the run named in the path from one snapshot of the index."""
        name = request.match_info["run"]
        return await self._snapshot(lambda db: read(db, _found(db, name)))

    def _trend_runs(
        self, connection: sqlite3.Connection, runs: Sequence[IndexedRun]
    ) -> list[TrendRun]:
        """The runs with their figures, the earliest first."""
        trends = [self._trends.of(connection, run) for run in runs]
        return sorted(trends, key=lambda trend: (trend.started_at, trend.run.run))

    async def _compare(
        self,
        names: Sequence[str],
        read: Callable[[sqlite3.Connection, list[Comparison], list[IndexedRun]], T],
    ) -> T:
        """Compare the runs in one snapshot of the index; what cannot be compared is named."""

        def work(connection: sqlite3.Connection) -> T:
            runs = [_found(connection, name) for name in names]
            return read(connection, self._comparisons.of(connection, runs), runs)

        return await self._snapshot(work)

    async def _snapshot(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Read from one snapshot of the index, in a thread."""

        def work() -> T:
            with self._database.read() as connection:
                return read(connection)

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _found(connection: sqlite3.Connection, name: str) -> IndexedRun:
    run = find_run(connection, name) if is_encodable(name) else None
    if run is None:
        raise _unknown_run(name, connection)
    return run


def _answer(value: object) -> web.Response:
    """A dataclass, what it holds, or a model as JSON."""
    return _json(to_json(value, inf_nan_mode="null"))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _query(request: web.Request, model: type[QueryT]) -> QueryT:
    fields = dict(request.query)
    if twice := sorted({name for name in request.query if len(request.query.getall(name)) > 1}):
        raise _bad_request(f"{twice[0][:50]}: given more than once")
    if not all(map(is_encodable, (*fields, *fields.values()))):
        raise _bad_request("a parameter is not UTF-8")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _bad_request(describe(error)) from None


def _no_sample(run: IndexedRun, sample: SampleId) -> web.HTTPException:
    return _not_found(f"run {run.run!r} has no judged sample {sample.key}")


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
    """Answer 503 while Redis or the index is unavailable, 404 for files that are gone, 400 for what
    the data do not allow."""
    try:
        return await handler(request)
    except DataError as error:
        raise _bad_request(str(error)) from None
    except RedisError as error:
        log.warning("Redis unavailable for a request", reason=str(error))
        return _unavailable("Redis is unavailable; try again")
    except sqlite3.OperationalError as error:
        log.warning("index unavailable for a request", reason=str(error))
        return _unavailable("the index is unavailable; try again")
    except IndexDamagedError as error:
        log.error("the index is damaged", reason=str(error))
        return _unavailable("the index is damaged, and is built again; try again")


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
