"""HTTP handlers of the API; SQLite and Redis are accessed in a thread pool."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from sqlite3 import Connection

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from redis.exceptions import RedisError

from services.aggregator.cases import CasePage, ReadCases
from services.aggregator.comparison import Comparisons, FlipPage, GateAnswer, flip_page, run_names
from services.aggregator.folders import FoldersStatus, RunFolders
from services.aggregator.index.database import Database
from services.aggregator.index.history import (
    HistoryAnswer,
    TrendRun,
    history_answer,
    scores,
    trend_run,
)
from services.aggregator.index.overview import (
    IndexedRun,
    RunCache,
    all_figures,
    all_runs,
    find_run,
    results,
)
from services.aggregator.index.performance import Performance, performance
from services.aggregator.index.queries import (
    CompareQuery,
    FailuresQuery,
    FlipsQuery,
    GateQuery,
    GridQuery,
    HistoryQuery,
    PageQuery,
    SampleFilter,
    SampleQuery,
)
from services.aggregator.index.rows import read_sample
from services.aggregator.index.samples import (
    Facets,
    FailureGroups,
    Grid,
    ProblemAnswers,
    SamplePage,
    facets,
    failure_groups,
    grid,
    problem_answers,
    samples_page,
)
from services.aggregator.run_answers import RunDetail, RunSummary, SampleDetail
from shared.analysis.compare import ComparisonDocument, comparison_document
from shared.analysis.gate import NamedPolicy
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

Path = dict[str, str]
"""The parameters in a path, by name."""

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
    """Add routes, response headers, and the clean-up at shutdown."""
    app.middlewares.append(_unavailable_stores)
    app.on_response_prepare.append(_add_headers)
    api = _Api(read_cases, folders, policy)
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")
    reading = asyncio.Semaphore(_READ_AT_ONCE)
    for route in ROUTES:
        # aiohttp's default pattern rejects braces in a path segment. A proxy may have decoded the
        # slash of a problem's id.
        path = route.path.replace("}", ":[^/]+}").replace("problem_id:[^/]+", r"problem_id:[\s\S]+")
        limit = reading if route.path.startswith(_SAMPLE) else nullcontext()
        app.router.add_get(
            path, _handler(route, getattr(api, route.name), database, threads, limit)
        )

    async def close(_app: web.Application) -> None:
        threads.shutdown(wait=False, cancel_futures=True)

    app.on_cleanup.append(close)


def _handler(
    route: Route,
    answer: Callable[..., object],
    database: Database,
    threads: ThreadPoolExecutor,
    limit: AbstractAsyncContextManager[None],
) -> Handler:
    """Answer a route in a thread, from one snapshot of the index."""

    async def handle(request: web.Request) -> web.Response:
        path = dict(request.match_info)
        if not is_encodable("".join(path.values())):
            raise _NotFoundError("the path is not UTF-8")
        parts: list[object] = [path] if path else []
        if route.query is not None:
            parts.append(_query(request, route.query))

        def work() -> bytes:
            with database.read() as connection:
                return to_json(answer(connection, *parts), inf_nan_mode="null")

        async with limit:
            body = await asyncio.get_running_loop().run_in_executor(threads, work)
        return web.Response(body=body, content_type="application/json")

    return handle


class _NotFoundError(Exception):
    """The path or the query names what is not there."""


class _Api:
    """The answers of the routes, by name: from a snapshot of the index, the path, and the query."""

    def __init__(
        self, read_cases: ReadCases, folders: RunFolders | None, policy: NamedPolicy | None
    ) -> None:
        self._read_cases = read_cases
        self._folders = folders
        self._figures = RunCache(all_figures)
        self._performance = RunCache(performance)
        self._trends = RunCache(trend_run, most=_MOST_TRENDS)
        self._policy = policy.name if policy else None
        self._comparisons = Comparisons(policy)

    def list_runs(self, connection: Connection) -> dict[str, RunSummary]:
        runs = all_runs(connection)
        by_run = scores(self._trend_runs(connection, runs))
        return {run.run: RunSummary.of(run, by_run[run.run]) for run in runs}

    def list_folders(self, _connection: Connection) -> FoldersStatus:
        return self._folders.status if self._folders else FoldersStatus()

    def show_run(self, connection: Connection, path: Path) -> RunDetail:
        run = _run(connection, path)
        figures = self._figures.of(connection, run)
        return RunDetail.of(connection, run, figures, results(connection, run))

    def list_samples(self, connection: Connection, path: Path, query: SampleQuery) -> SamplePage:
        return samples_page(connection, _run(connection, path).id, query)

    def count_choices(self, connection: Connection, path: Path, query: SampleFilter) -> Facets:
        return facets(connection, _run(connection, path).id, query)

    def group_failures(
        self, connection: Connection, path: Path, query: FailuresQuery
    ) -> FailureGroups:
        return failure_groups(connection, _run(connection, path).id, query)

    def show_sample(self, connection: Connection, path: Path) -> SampleDetail:
        run, sample = _run(connection, path), _sample(path)
        if (detail := SampleDetail.of(connection, run, sample)) is None:
            raise _no_sample(run, sample)
        return detail

    def list_cases(self, connection: Connection, path: Path, query: PageQuery) -> CasePage:
        run, sample = _run(connection, path), _sample(path)
        if read_sample(connection, run.id, sample) is None:
            raise _no_sample(run, sample)
        return CasePage.of(*self._read_cases(run, sample), query, run.language(sample.dataset))

    def show_performance(self, connection: Connection, path: Path) -> Performance:
        return self._performance.of(connection, _run(connection, path))

    def show_history(self, connection: Connection, query: HistoryQuery) -> HistoryAnswer:
        runs = self._trend_runs(connection, all_runs(connection))
        try:
            return history_answer(runs, query.protocol, self._policy)
        except LookupError:
            hint = "/api/history lists those that there are"
            text = f"no run has the protocol {query.protocol!r}; {hint}"
            raise _NotFoundError(text) from None

    def show_gate(self, connection: Connection, query: GateQuery) -> GateAnswer:
        baseline, run = (_found(connection, name) for name in (query.baseline, query.run))
        return self._comparisons.gate(connection, baseline, run)

    def compare_runs(self, connection: Connection, query: CompareQuery) -> ComparisonDocument:
        runs = [_found(connection, name) for name in run_names(query.runs)]
        return comparison_document(self._comparisons.of(connection, runs), flips=False)

    def list_flips(self, connection: Connection, query: FlipsQuery) -> FlipPage:
        runs = [_found(connection, name) for name in run_names(query.runs, most=2)]
        (comparison,) = self._comparisons.of(connection, runs)
        return flip_page(comparison, query)

    def show_grid(self, connection: Connection, query: GridQuery) -> Grid:
        runs = [_found(connection, name) for name in run_names(query.runs, least=1)]
        return grid(connection, runs, query)

    def show_problem(self, connection: Connection, path: Path) -> ProblemAnswers:
        problem = path["dataset"], path["problem_id"]
        if (answers := problem_answers(connection, all_runs(connection), problem)) is None:
            text = f"no run has an answer to {'/'.join(problem)[:400]!r}"
            raise _NotFoundError(text)
        return answers

    def describe(self, _connection: Connection) -> openapi.JsonObject:
        return openapi.document("Plumbline aggregator", ROUTES)

    def _trend_runs(self, connection: Connection, runs: Sequence[IndexedRun]) -> list[TrendRun]:
        """The runs with their figures, the earliest first."""
        trends = [self._trends.of(connection, run) for run in runs]
        return sorted(trends, key=lambda trend: (trend.shown.started_at or 0, trend.run.run))


def _run(connection: Connection, path: Path) -> IndexedRun:
    return _found(connection, path["run"])


def _found(connection: Connection, name: str) -> IndexedRun:
    run = find_run(connection, name) if is_encodable(name) else None
    if run is None:
        names = [run.run for run in all_runs(connection)]
        shown = ", ".join(names[:_LISTED_RUNS]) + (", …" if len(names) > _LISTED_RUNS else "")
        hint = f"there are: {shown}" if names else "none yet"
        raise _NotFoundError(f"no run {name[:200]!r}; {hint}")
    return run


def _query(request: web.Request, model: type[BaseModel]) -> BaseModel:
    fields = dict(request.query)
    if twice := sorted({name for name in request.query if len(request.query.getall(name)) > 1}):
        raise DataError(f"{twice[0][:50]}: given more than once")
    if not all(map(is_encodable, (*fields, *fields.values()))):
        raise DataError("a parameter is not UTF-8")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise DataError(describe(error)) from None


def _no_sample(run: IndexedRun, sample: SampleId) -> Exception:
    return _NotFoundError(f"run {run.run!r} has no judged sample {sample.key}")


def _sample(path: Path) -> SampleId:
    index = path["sample_index"]
    if not _SAMPLE_INDEX.fullmatch(index):
        raise _NotFoundError(f"{index[:50]!r} is not a sample index")
    return SampleId(path["dataset"], path["problem_id"], int(index))


# Errors: the body of every response with a status of 400 or above is ``{"error": …}``.


@web.middleware
async def _unavailable_stores(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 503 while Redis or the index is unavailable, 400 or 404 for an impossible request."""
    try:
        return await handler(request)
    except DataError as error:
        return json_error(400, str(error))
    except _NotFoundError as error:
        return json_error(404, str(error))
    except RedisError as error:
        log.warning("Redis unavailable for a request", reason=str(error))
        reason = "Redis is unavailable; try again"
    except sqlite3.OperationalError as error:
        log.warning("index unavailable for a request", reason=str(error))
        reason = "the index is unavailable; try again"
    except sqlite3.DatabaseError as error:
        log.error("the index is damaged", reason=str(error))
        reason = "the index is damaged; a restart builds it again"
    return json_error(503, reason, headers={"Retry-After": "2"})


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to sniff, cache or execute a response; the page's headers take precedence."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
