"""Parser of replica responses: token usage and aborted answers.

It works on bytes and decodes as little JSON as possible.
"""

import json
import re
from dataclasses import dataclass

_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_COUNTS = {
    "prompt": re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,15})'),
    "completion": re.compile(rb'"completion_tokens"\s*:\s*(\d{1,15})'),
}


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


def find_usage(body: bytes) -> Usage | None:
    """Find the last ``usage`` in the bytes, which is the valid one."""
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
