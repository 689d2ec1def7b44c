"""OpenAPI 3.1 document of the API, generated from its routes and models."""

from services.aggregator.api.models import (
    CasePage,
    CasesQuery,
    Failure,
    RunDetail,
    RunList,
    RunSummary,
    SampleDetail,
    SamplePage,
    SamplesQuery,
    TimelineAnswer,
)
from shared.service import openapi
from shared.service.openapi import OPERATIONS, JsonObject, Route

_NO_RUN = (404, "No such run; the error lists the existing runs.")
_NO_INDEX = (503, "Index or Redis is unavailable; try again.")
_RUN = "/api/runs/{run}"
ROUTES: tuple[Route, ...] = (
    Route("/api/runs", "list_runs", "All runs", RunList, failures=(_NO_INDEX,)),
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
        query=SamplesQuery,
        failures=((400, "A parameter is invalid."), _NO_RUN, _NO_INDEX),
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
        f"{_RUN}/samples/{{dataset}}/{{problem_id}}/{{sample_index}}/cases",
        "list_cases",
        "Recorded cases of a sample, page by page, those that failed first",
        CasePage,
        query=CasesQuery,
        failures=((400, "A parameter is invalid."), (404, "No such run or sample."), _NO_INDEX),
        integers=("sample_index",),
    ),
    Route(
        f"{_RUN}/timeline",
        "show_timeline",
        "Numbers of samples generated and judged over time",
        TimelineAnswer,
        failures=(_NO_RUN, _NO_INDEX),
    ),
    Route(
        f"{_RUN}/events",
        "follow_run",
        "Progress as server-sent events: `progress` at most once a second, then `end` or `gone`",
        RunSummary,
        failures=(_NO_RUN, _NO_INDEX),
        media="text/event-stream",
    ),
    Route("/api/openapi.json", "describe", "This document"),
)


def document() -> JsonObject:
    """Build the OpenAPI document of the API and of the operations endpoints."""
    return openapi.document("Plumbline aggregator", [*ROUTES, *OPERATIONS], Failure)
