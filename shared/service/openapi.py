"""OpenAPI 3.1 descriptions of the services, generated from their routes and models.

A service lists its routes as :class:`Route`; what every service answers besides is in
:data:`OPERATIONS`. Tests compare the lists with what the applications serve.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from aiohttp import web
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

JsonObject = dict[str, JsonValue]
PATH = "/openapi.json"
_REFERENCE = "#/components/schemas/{model}"
_Methods = Literal["get", "head", "post"]


class Alive(BaseModel):
    """Body of ``/healthz``."""

    status: Literal["alive"]


class Ready(BaseModel):
    """Body of ``/readyz``, with the reason why the service is not ready and fields of its own."""

    model_config = ConfigDict(extra="allow")

    ready: bool
    reason: str | None = None


class Failure(BaseModel):
    """Body of an error response, where a service has none of its own."""

    error: str


@dataclass(frozen=True, slots=True)
class Route:
    """Description of one route.

    Attributes:
        path: Path, with parameters in braces.
        name: Name of the operation.
        summary: Its meaning in a phrase.
        answer: Type of a 200 response; None if it is empty, or text or JSON of any kind.
        body: Type of the request body, None without one.
        query: Model of the query's parameters.
        failures: Expected statuses of 400 and above, with their meanings, beside those that every
            route has (the access rules', 404, 405, 413).
        media: Media type of a 200 response; empty if all responses are.
        integers: Parameters of the path that are integers.
        failure: Type of an error response if it is not that of the service.
    """

    path: str
    name: str
    summary: str
    answer: object = None
    method: _Methods = "get"
    body: object = None
    query: type[BaseModel] | None = None
    failures: tuple[tuple[int, str], ...] = ()
    media: str = "application/json"
    integers: tuple[str, ...] = ()
    failure: object = None


METRICS = Route("/metrics", "metrics", "Prometheus' text format", media="text/plain")
OPERATIONS: tuple[Route, ...] = (
    Route("/healthz", "alive", "The process runs", Alive),
    Route(
        "/readyz",
        "ready",
        "The service can work",
        Ready,
        failures=((503, "It cannot; the reason says why."),),
        failure=Ready,
    ),
    METRICS,
)
DESCRIPTION = Route(PATH, "describe", "This document")


def document(title: str, routes: Sequence[Route], failure: object) -> JsonObject:
    """Build the OpenAPI document of ``routes``; ``failure`` is the type of error responses."""
    schemas, definitions = _schemas(routes, failure)
    paths: dict[str, JsonValue] = {}
    for route in routes:
        operation = _operation(route, schemas, failure)
        paths[route.path] = {**_mapping(paths.get(route.path)), route.method: operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {"schemas": definitions},
    }


def add_description(
    app: web.Application, title: str, routes: Sequence[Route], failure: object
) -> None:
    """Serve the document of ``routes``, of the operations and of itself at ``/openapi.json``."""
    described = document(title, [*routes, *OPERATIONS, DESCRIPTION], failure)

    async def describe(_request: web.Request) -> web.Response:
        return web.json_response(described)

    app.router.add_get(PATH, describe)


# Types are compared by identity: aliases such as ``list[str]`` are not classes.
_Schemas = dict[tuple[int, JsonSchemaMode], JsonObject]


def _schemas(routes: Sequence[Route], failure: object) -> tuple[_Schemas, JsonObject]:
    """Schema of every type in each use, and the definitions that they refer to."""
    used: dict[tuple[int, JsonSchemaMode], object] = {}
    for route in routes:
        used[id(route.body), "validation"] = route.body
        used[id(route.query), "serialization"] = route.query
        used[id(route.answer), "serialization"] = route.answer
        used[id(route.failure), "serialization"] = route.failure
    used[id(failure), "serialization"] = failure
    inputs = [
        (key, mode, TypeAdapter(cast(type[object], kind)))
        for (key, mode), kind in used.items()
        if kind is not None
    ]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
    return dict(schemas), definitions.get("$defs", {})


def _operation(route: Route, schemas: _Schemas, failure: object) -> JsonObject:
    meant = failure if route.failure is None else route.failure
    responses: JsonObject = {"200": _answer(route, schemas)}
    for status, meaning in route.failures:
        responses[str(status)] = _failure(route, schemas, meant, meaning)
    responses["default"] = _failure(route, schemas, failure, "The request is refused.")
    operation: JsonObject = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route.query)],
        "responses": responses,
    }
    if route.body is not None:
        content: JsonObject = {"schema": schemas[id(route.body), "validation"]}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _answer(route: Route, schemas: _Schemas) -> JsonObject:
    if _empty(route):
        return {"description": route.summary}
    if route.answer is not None:
        content: JsonObject = {"schema": schemas[id(route.answer), "serialization"]}
    else:
        content = {} if route.media == "application/json" else {"schema": {"type": "string"}}
    return {"description": route.summary, "content": {route.media: content}}


def _failure(route: Route, schemas: _Schemas, kind: object, meaning: str) -> JsonObject:
    if _empty(route):
        return {"description": meaning}
    schema: JsonObject = {"schema": schemas[id(kind), "serialization"]}
    return {"description": meaning, "content": {"application/json": schema}}


def _empty(route: Route) -> bool:
    return route.method == "head" or not route.media


def _path_parameters(route: Route) -> list[JsonValue]:
    """List the path parameters, one per segment: slashes in an id are percent-encoded."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if name in route.integers else "string"},
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(query: type[BaseModel] | None) -> list[JsonValue]:
    if query is None:
        return []
    schema = query.model_json_schema(mode="serialization", ref_template=_REFERENCE)
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in schema["properties"].items()
    ]


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
