"""What the bytes of an answer say, read without decoding more of them than needed."""

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


def aborted(body: bytes) -> bool:
    """Whether any choice ends with ``finish_reason: "abort"``, an engine's way to give up."""
    # Within a text the quotation marks are escaped, so nearly every body ends here.
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


def usage_of(body: bytes) -> Usage | None:
    """The last ``usage`` in the bytes, which is the one that counts in a body and in a stream."""
    end = len(body)
    while (start := body.rfind(b'"usage"', 0, end)) >= 0:
        if _USAGE.match(body, start):
            return Usage(_count("prompt", body, start), _count("completion", body, start))
        end = start
    return None


def _count(kind: str, body: bytes, start: int) -> int:
    found = _COUNTS[kind].search(body, start)
    return int(found[1]) if found else 0
