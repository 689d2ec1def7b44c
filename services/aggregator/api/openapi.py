"""OpenAPI 3.1 document of the API, generated from its routes and models."""

from services.aggregator.api.models import (
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
from shared.service.openapi import JsonObject, Route

_RUN = "/api/runs/{run}"
_SAMPLE = f"{_RUN}/samples/{{dataset}}/{{problem_id}}/{{sample_index}}"
ROUTES: tuple[Route, ...] = (
    Route("/api/runs", "list_runs", "All runs", RunList),
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
    ),
    Route(
        f"{_RUN}/samples",
        "list_samples",
        "Judged samples, page by page",
        SamplePage,
        query=SampleQuery,
    ),
    Route(
        f"{_RUN}/facets",
        "count_choices",
        "Numbers of samples by status, data set, tag and other choices, under filters",
        Facets,
        query=SampleFilter,
    ),
    Route(
        f"{_RUN}/failures",
        "group_failures",
        "Failures by what they have in common, the largest group first",
        FailureGroups,
        query=FailuresQuery,
    ),
    Route(
        f"{_SAMPLE}/cases",
        "list_cases",
        "Recorded cases of a sample, page by page, those that failed first",
        CasePage,
        query=CasesQuery,
    ),
    Route(
        _SAMPLE,
        "show_sample",
        "A sample with prompt, completion, code and verdict",
        SampleDetail,
    ),
    Route(
        f"{_RUN}/performance",
        "show_performance",
        "Load of generation and judging over time, and what the run waits for",
        Performance,
    ),
    Route(
        "/api/history",
        "show_history",
        "Runs by measurement, and the trend of those of one",
        HistoryAnswer,
        query=HistoryQuery,
    ),
    Route(
        "/api/gate",
        "show_gate",
        "The gate's verdict on a run against a baseline",
        GateAnswer,
        query=GateQuery,
    ),
    Route(
        "/api/compare",
        "compare_runs",
        "Runs compared with the first one: differences, intervals, tests, statuses, slices",
        ComparisonAnswer,
        query=CompareQuery,
    ),
    Route(
        "/api/compare/flips",
        "list_flips",
        "Samples of two runs side by side, page by page",
        FlipPage,
        query=FlipsQuery,
    ),
    Route(
        "/api/compare/grid",
        "show_grid",
        "Problems by runs: shares of accepted samples",
        Grid,
        query=GridQuery,
    ),
    Route(
        "/api/problems/{dataset}/{problem_id}",
        "show_problem",
        "A problem with the answers of all runs",
        ProblemAnswers,
    ),
    Route("/api/openapi.json", "describe", "This document"),
)


def document() -> JsonObject:
    """Build the OpenAPI document of the API."""
    return openapi.document("Plumbline aggregator", ROUTES)
