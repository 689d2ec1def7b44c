"""OpenAPI 3.1 document of the API, generated from its routes and models."""

from services.aggregator.api.models import (
    Failure,
    RunDetail,
    RunList,
    SampleDetail,
)
from services.aggregator.api.trend_models import (
    GateAnswer,
    GateQuery,
    HistoryAnswer,
    HistoryQuery,
)
from services.aggregator.cases import CasePage, CasesQuery
from services.aggregator.comparison.models import (
    CompareQuery,
    ComparisonAnswer,
    FlipPage,
    FlipsQuery,
    GridQuery,
)
from services.aggregator.folders.watch import FoldersStatus
from services.aggregator.index.across import Grid, ProblemAnswers
from services.aggregator.index.facets import Facets
from services.aggregator.index.failures import FailureGroups, FailuresQuery
from services.aggregator.index.filters import SampleFilter
from services.aggregator.index.pages import SamplePage, SampleQuery
from services.aggregator.index.performance import Performance
from shared.service import openapi
from shared.service.openapi import OPERATIONS, JsonObject, Route

_NO_RUN = (404, "No such run; the error lists the existing runs.")
_NO_INDEX = (503, "Index or Redis is unavailable; try again.")
_RUN = "/api/runs/{run}"
ROUTES: tuple[Route, ...] = (
    Route("/api/runs", "list_runs", "All runs", RunList, failures=(_NO_INDEX,)),
    Route(
        "/api/folders",
        "list_folders",
        "Folders that are searched for finished runs, and what of them cannot be read",
        FoldersStatus,
    ),
    Route(
        _RUN,
        "show_run",
        "A run with config, facts and live figures, at most 2 seconds old",
        RunDetail,
        failures=(_NO_RUN, _NO_INDEX),
    ),
    Route(
        f"{_RUN}/samples",
        "list_samples",
        "Judged samples, page by page",
        SamplePage,
        query=SampleQuery,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
    ),
    Route(
        f"{_RUN}/facets",
        "count_choices",
        "Numbers of samples by status, data set, tag and other choices, under filters",
        Facets,
        query=SampleFilter,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
    ),
    Route(
        f"{_RUN}/failures",
        "group_failures",
        "Failures by what they have in common, the largest group first",
        FailureGroups,
        query=FailuresQuery,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
    ),
    Route(
        f"{_RUN}/samples/{{dataset}}/{{problem_id}}/{{sample_index}}/cases",
        "list_cases",
        "Recorded cases of a sample, page by page, those that failed first",
        CasePage,
        query=CasesQuery,
        failures=((400, "A parameter is invalid."), (404, "No such run or sample."), _NO_INDEX),
        integers=("sample_index",),
    ),
    Route(
        f"{_RUN}/samples/{{dataset}}/{{problem_id}}/{{sample_index}}",
        "show_sample",
        "A sample with prompt, completion, code and verdict",
        SampleDetail,
        failures=((404, "No such run or sample."), _NO_INDEX),
        integers=("sample_index",),
    ),
    Route(
        f"{_RUN}/performance",
        "show_performance",
        "Load of generation and judging over time, and what the run waits for",
        Performance,
        failures=(_NO_RUN, _NO_INDEX),
    ),
    Route(
        "/api/history",
        "show_history",
        "Runs by measurement, and the trend of those of one",
        HistoryAnswer,
        query=HistoryQuery,
        failures=((400, "A parameter is invalid."), (404, "No such protocol."), _NO_INDEX),
    ),
    Route(
        "/api/gate",
        "show_gate",
        "The gate's verdict on a run against a baseline",
        GateAnswer,
        query=GateQuery,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
    ),
    Route(
        "/api/compare",
        "compare_runs",
        "Runs compared with the first one: differences, intervals, tests, statuses, slices",
        ComparisonAnswer,
        query=CompareQuery,
        failures=(
            (400, "The runs cannot be compared, or a parameter is invalid."),
            _NO_RUN,
            _NO_INDEX,
        ),
    ),
    Route(
        "/api/compare/flips",
        "list_flips",
        "Samples of two runs side by side, page by page",
        FlipPage,
        query=FlipsQuery,
        failures=(
            (400, "The runs cannot be compared, or a parameter is invalid."),
            _NO_RUN,
            _NO_INDEX,
        ),
    ),
    Route(
        "/api/compare/grid",
        "show_grid",
        "Problems by runs: shares of accepted samples",
        Grid,
        query=GridQuery,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
    ),
    Route(
        "/api/problems/{dataset}/{problem_id}",
        "show_problem",
        "A problem with the answers of all runs",
        ProblemAnswers,
        failures=((404, "No run has an answer to it."), _NO_INDEX),
    ),
    Route("/api/openapi.json", "describe", "This document"),
)


def document() -> JsonObject:
    """Build the OpenAPI document of the API and of the operations endpoints."""
    return openapi.document("Plumbline aggregator", [*ROUTES, *OPERATIONS], Failure)
