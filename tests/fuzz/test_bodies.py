"""Large wrong bodies for every list and map of every request.

Each gets a short answer in little memory. The places are those of each server's own description or
model, so a new field is tried as well. Code whose time is quadratic would not answer for minutes.
"""

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

from services.generator.backends.replay.app import ChatRequest
from tests.fuzz.servers import DESCRIBED, Server, failures

_MEMBERS = 100_000
_SECONDS = 60.0
_LONGEST_ANSWER = 32 * 1024
_DEEP = 100_000
_LIST = b"[" + b"{}," * _MEMBERS + b"{}]"
_MAP = b"{" + b",".join(b'"k%d": {}' % n for n in range(_MEMBERS)) + b"}"
_WHOLE = {
    "a list": _LIST,
    "a map": _MAP,
    "many numbers": b"[" + b"1," * _MEMBERS * 10 + b"1]",
    "great depth": b"[" * _DEEP + b"]" * _DEEP,
    "a long number": b'{"id": ' + b"9" * _MEMBERS + b"}",
}

Json = dict[str, Any]


def wrong_bodies(server: Server) -> Iterator[tuple[str, str, bytes]]:
    """Path, place and body, for every place of every request."""
    for path, schema, description in requests_of(server):
        wrong = [*_WHOLE.items(), *places(schema, description)]
        yield from ((path, place, document) for place, document in wrong)


def requests_of(server: Server) -> Iterator[tuple[str, Json, Json]]:
    """Path, schema of the body, and the document with the schemas that it refers to."""
    if server.name in ("replay", "router"):
        schema = ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        yield "/v1/chat/completions", schema, {"components": {"schemas": schema["$defs"]}}
    if server.name not in DESCRIBED:
        return
    description: Any = server.description()
    for path, operations in description["paths"].items():
        if body := operations.get("post", {}).get("requestBody"):
            schema = body["content"]["application/json"]["schema"]
            yield path, resolve(schema, description), description


def places(schema: Json, description: Any, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Documents in which one field is a very long list, or map, of wrong members."""
    for name, field in schema.get("properties", {}).items():
        start = b'{"%s": ' % name.encode()
        yield f"{name}[]", start + _LIST + b"}"
        yield f"{name}{{}}", start + _MAP + b"}"
        inner = resolve(field, description)
        if depth == 0 and "properties" in inner:
            for place, document in places(inner, description, depth + 1):
                yield f"{name}.{place}", start + document + b"}"


def resolve(schema: Json, description: Any) -> Json:
    """The schema of an object, behind references and alternatives."""
    for option in [schema, *schema.get("anyOf", [])]:
        if reference := option.get("$ref"):
            found: Json = description["components"]["schemas"][reference.rpartition("/")[2]]
            return found
    return schema


def test_large_wrong_bodies(servers: list[Server]) -> None:
    def check(server: Server) -> str | None:
        for path, place, body in wrong_bodies(server):
            status, answer = post(server, path, body)
            # The router leaves to the engines what they understand by a field.
            right = 400 <= status < 500 or (server.name == "router" and status < 400)
            if not right or len(answer) >= _LONGEST_ANSWER:
                return f"{path} {place}: {status}, {len(answer)} bytes, {answer[:200]!r}"
        return None

    assert failures(check, [(server,) for server in servers]) == {}


def post(server: Server, path: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=_SECONDS)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
