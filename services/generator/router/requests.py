"""Requests to forward: request id, limits, the model's name.

The body is parsed once and forwarded unchanged, except for the model's name.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from services.generator.protocol import MAX_LIST, RequestError, decode_body
from shared.text import shorten_end

_MAX_ID_LENGTH = 512
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's ``X-Request-Id`` if it is a valid header value, else a new id."""
    given = headers.get("X-Request-Id", "")
    usable = given.isascii() and given.isprintable() and 0 < len(given) <= _MAX_ID_LENGTH
    return given if usable else uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A request to forward."""

    path: str
    body: bytes
    model: str | None

    def body_for(self, model: str) -> bytes:
        """Return the body with the model's name replaced by ``model``."""
        if self.model is None or self.model == model:
            return self.body
        name = json.dumps(model).encode()
        found = list(_MODEL.finditer(self.body))
        if len(found) == 1 and json.loads(found[0][1]) == self.model:
            return self.body[: found[0].start(1)] + name + self.body[found[0].end(1) :]
        # The key occurs several times, or has an unusual escape sequence.
        return json.dumps({**json.loads(self.body), "model": model}).encode()


def parse_routed_request(path: str, body: bytes) -> RoutedRequest:
    """Parse a request body for routing.

    Args:
        path: Path of the request, from ``/v1`` on.
        body: As the client sent it.

    Raises:
        RequestError: 400, the body is not a JSON object, has more in it than a request needs, or
            asks for a stream. The engine validates everything else.
    """
    document = decode_body(body)
    if not isinstance(document, dict):
        raise RequestError(400, "the request body is not a JSON object", code="invalid_json")
    _check_lists(document)
    if document.get("stream") is True:
        raise RequestError(400, "answers are not streamed; leave out stream")
    model = document.get("model")
    return RoutedRequest(path, body, model if isinstance(model, str) else None)


def _check_lists(document: Mapping[str, object]) -> None:
    """Refuse what an engine would answer with an error per member; a prompt may be token ids."""
    if len(document) > MAX_LIST:
        raise RequestError(400, f"the request has more than {MAX_LIST} fields")
    for name, value in document.items():
        if isinstance(value, list) and len(value) > MAX_LIST and name != "prompt":
            shown = shorten_end(name, _MAX_ID_LENGTH)
            raise RequestError(400, f"{shown}: more than {MAX_LIST} members")
