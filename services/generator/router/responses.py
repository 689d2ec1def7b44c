"""Parser of replica responses: token usage, aborted answers, server-sent events.

It works on bytes and decodes as little JSON as possible.
"""

import json
import re
from dataclasses import dataclass

from services.generator.router.replica import AttemptError, FailureReason

_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_COUNTS = {
    "prompt": re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,15})'),
    "completion": re.compile(rb'"completion_tokens"\s*:\s*(\d{1,15})'),
}
_MAX_EVENT = 8 * 2**20
_BOUNDARY = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


def find_usage(body: bytes) -> Usage | None:
    """Find the last ``usage`` in the bytes, which is the valid one in a body and in a stream."""
    end = len(body)
    while (start := body.rfind(b'"usage"', 0, end)) >= 0:
        if _USAGE.match(body, start):
            return Usage(_count("prompt", body, start), _count("completion", body, start))
        end = start
    return None


def _count(kind: str, body: bytes, start: int) -> int:
    found = _COUNTS[kind].search(body, start)
    return int(found[1]) if found else 0


def is_aborted_body(body: bytes) -> bool:
    """Whether any choice ends with ``finish_reason: "abort"``: the engine dropped the request."""
    # Quotes in a text are escaped, so this skips nearly every body.
    if b'"abort"' not in body:
        return False
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return is_aborted(document)


def is_aborted(document: object) -> bool:
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices
    )


# Server-sent events


class EventSplitter:
    """Buffer that returns only whole events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Add data; returns all events that are complete now, unchanged.

        Raises:
            AttemptError: An event is larger than 8 MiB.
        """
        data = self._rest + data if self._rest else data
        end = max(_end(data, b"\n\n"), _end(data, b"\r\n\r\n"))
        self._rest = data[end:]
        if len(self._rest) > _MAX_EVENT:
            message = "an event of the stream is larger than 8 MiB"
            raise AttemptError(FailureReason.BROKEN_STREAM, message)
        return data[:end]


def _end(data: bytes, mark: bytes) -> int:
    found = data.rfind(mark)
    return found + len(mark) if found >= 0 else 0


def split_at_failure(block: bytes) -> tuple[bytes, AttemptError | None]:
    """Split off the events before the first failure; returns them and the failure."""
    if b'"abort"' not in block and b'"error"' not in block:
        return block, None
    valid = 0
    for event in _BOUNDARY.split(block):
        if failure := _failure(_decode(event)):
            return block[:valid], failure
        valid += len(event)
    return block, None


def has_no_content(block: bytes) -> bool:
    """Whether no event has text or a finish reason, such as one with only the role."""
    return all(_is_empty_event(event) for event in _BOUNDARY.split(block) if event.strip())


def is_done(block: bytes) -> bool:
    return block.rstrip().endswith(b"[DONE]")


def _decode(event: bytes) -> object:
    """Parse the JSON of an event; None if it has no valid JSON."""
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        return json.loads(b"\n".join(lines)) if lines else None
    except (ValueError, RecursionError):
        return None


def _failure(document: object) -> AttemptError | None:
    if is_aborted(document):
        return AttemptError(FailureReason.ABORT, "the replica aborted the request")
    error = document.get("error") if isinstance(document, dict) else None
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return None  # the client's error, which is relayed
    message = error.get("message") if isinstance(error, dict) else error
    text = f"the replica's stream reports an error: {message}"[:500]
    return AttemptError(FailureReason.SERVER_ERROR, text)


def _is_empty_event(event: bytes) -> bool:
    if event.startswith(b":"):
        return True  # a comment, as a keep-alive
    document = _decode(event)
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and bool(choices) and all(map(_is_empty_choice, choices))


def _is_empty_choice(choice: object) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None:
        return False
    delta = choice.get("delta")
    content = {**delta, "role": None} if isinstance(delta, dict) else {"text": choice.get("text")}
    return not any(content.values())
