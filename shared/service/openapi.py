"""OpenAPI 3.1 descriptions of the services' own APIs, generated from their routes and models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from aiohttp import web
from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

JsonObject = dict[str, JsonValue]


class Failure(BaseModel):
    """Body of an error response, where a service has none of its own."""

    error: str


@dataclass(frozen=True, slots=True)
class Route:
    """Description of a route: path with parameters in braces, name of the operation, its meaning.

    ``answer`` is the type of a 200 response, None for JSON of any kind, or without a body. ``body``
    is the type of the request's body, ``query`` the model of its query's parameters.
    """

    path: str
    name: str
    summary: str
    answer: object = None
    method: Literal["get", "head", "post"] = "get"
    body: object = None
    query: type[BaseModel] | None = None


def document(title: str, routes: Sequence[Route], failure: object = Failure) -> JsonObject:
    """Build the OpenAPI document of ``routes``; ``failure`` is the type of error responses."""
    definitions: JsonObject = {}

    def schema_of(kind: object, mode: JsonSchemaMode = "serialization") -> dict[str, Any]:
        template = "#/components/schemas/{model}"
        schema = TypeAdapter(cast(type[object], kind)).json_schema(mode=mode, ref_template=template)
        definitions.update(schema.pop("$defs", {}))
        return schema

    def content(kind: object, mode: JsonSchemaMode = "serialization") -> JsonObject:
        if kind is None:
            return {}
        return {"content": {"application/json": {"schema": schema_of(kind, mode)}}}

    paths: dict[str, dict[str, JsonValue]] = {}
    for route in routes:
        parameters: list[JsonValue] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ]
        properties = schema_of(route.query)["properties"] if route.query else {}
        for name, schema in properties.items():
            parameters.append({"name": name, "in": "query", "schema": schema})
        operation: JsonObject = {
            "operationId": route.name,
            "summary": route.summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": route.summary, **content(route.answer)},
                "default": {"description": "The request is refused.", **content(failure)},
            },
        }
        if route.body is not None:
            operation["requestBody"] = {"required": True, **content(route.body, "validation")}
        paths.setdefault(route.path, {})[route.method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": cast(JsonObject, paths),
        "components": {"schemas": definitions},
    }


def add_description(
    app: web.Application, title: str, routes: Sequence[Route], failure: object = Failure
) -> None:
    """Serve the document of ``routes`` at ``/openapi.json``."""
    described = document(title, routes, failure)

    async def describe(_request: web.Request) -> web.Response:
        return web.json_response(described)

    app.router.add_get("/openapi.json", describe)
