"""OpenAPI 3.1 document of the API, generated from its routes and models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import models_json_schema

from services.aggregator.api.models import (
    Failure,
    RunDetail,
    RunList,
    RunSummary,
    SampleDetail,
    SamplePage,
    SamplesQuery,
    TimelineAnswer,
)
from shared.run_record import JsonObject

_REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Route:
    """A GET route. ``failures``: error statuses and meanings; ``media``: type of a 200 response."""

    path: str
    name: str
    summary: str
    answer: type[BaseModel] | None
    query: type[BaseModel] | None = None
    failures: tuple[tuple[int, str], ...] = ()
    media: str = "application/json"


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
    Route("/api/openapi.json", "describe", "This document", None),
)


def document(routes: Sequence[Route] = ROUTES) -> JsonObject:
    """Build the OpenAPI document of ``routes``."""
    models: set[type[BaseModel]] = {Failure}
    for route in routes:
        models |= {model for model in (route.answer, route.query) if model is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "serialization") for model in ordered], ref_template=_REFERENCE
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Plumbline aggregator", "version": "1"},
        "paths": {route.path: {"get": _operation(route)} for route in routes},
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(route: Route) -> JsonObject:
    schema: JsonObject = _reference(route.answer) if route.answer else {"type": "object"}
    failures: JsonObject = {
        str(status): {
            "description": meaning,
            "content": {"application/json": {"schema": _reference(Failure)}},
        }
        for status, meaning in route.failures
    }
    return {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_path_parameters(route.path), *_query_parameters(route.query)],
        "responses": {
            "200": {"description": route.summary, "content": {route.media: {"schema": schema}}},
            **failures,
        },
    }


def _path_parameters(path: str) -> list[JsonValue]:
    """List the path parameters, one per segment: slashes in an id are percent-encoded."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if name == "sample_index" else "string"},
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(query: type[BaseModel] | None) -> list[JsonValue]:
    if query is None:
        return []
    schema = query.model_json_schema(mode="serialization", ref_template=_REFERENCE)
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in schema["properties"].items()
    ]


def _reference(model: type[BaseModel]) -> JsonObject:
    return {"$ref": _REFERENCE.format(model=model.__name__)}
