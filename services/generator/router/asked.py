"""What the router has to know of a request, whose body goes on as it came."""

import json
import re
from dataclasses import dataclass
from typing import Any

from services.generator.protocol import RequestError

_CHARACTERS_PER_TOKEN = 4
# Beyond these the engine says no; until then they must not make a replica look busy for ever.
_MOST_TOKENS = 1_000_000
_MOST_ANSWERS = 1024
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Asked:
    """``prompt_tokens`` and ``output_tokens`` are estimates of the work, over all its answers."""

    path: str
    body: bytes
    model: str | None
    prompt_tokens: int
    output_tokens: int

    def body_for(self, model: str) -> bytes:
        """The body for an engine that calls the model ``model``."""
        if self.model is None or self.model == model:
            return self.body
        name = json.dumps(model).encode()
        found = list(_MODEL.finditer(self.body))
        if len(found) == 1 and json.loads(found[0][1]) == self.model:
            return self.body[: found[0].start(1)] + name + self.body[found[0].end(1) :]
        # The key stands there several times, or in a notation of its own.
        return json.dumps({**json.loads(self.body), "model": model}).encode()


def read_asked(path: str, body: bytes, default_output: int) -> Asked:
    """Look into a body once.

    Args:
        path: Where the request goes, from ``/v1`` on.
        body: As the client sent it.
        default_output: Tokens of an answer whose request sets no limit.

    Raises:
        RequestError: 400, the body is no JSON object. All else is for the engine to judge.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "the request body is not JSON", code="invalid_json") from None
    if not isinstance(document, dict):
        raise RequestError(400, "the request body is not a JSON object", code="invalid_json")
    model = document.get("model")
    prompts, prompt_tokens = _prompts(document)
    limit = _count(document.get("max_completion_tokens")) or _count(document.get("max_tokens"))
    answers = min(prompts * (_count(document.get("n")) or 1), _MOST_ANSWERS)
    return Asked(
        path,
        body,
        model if isinstance(model, str) else None,
        min(prompt_tokens, _MOST_TOKENS),
        answers * min(limit or default_output, _MOST_TOKENS),
    )


def _prompts(document: dict[str, Any]) -> tuple[int, int]:
    """How many prompts there are, and the tokens of all of them."""
    if isinstance(messages := document.get("messages"), list):
        characters = sum(_characters(message) for message in messages)
        return 1, characters // _CHARACTERS_PER_TOKEN + 1
    prompt = document.get("prompt")
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1, _tokens(prompt)
    return len(prompt), sum(_tokens(one) for one in prompt)


def _tokens(prompt: object) -> int:
    if isinstance(prompt, list):  # of token ids
        return len(prompt)
    return len(prompt) // _CHARACTERS_PER_TOKEN + 1 if isinstance(prompt, str) else 1


def _characters(message: object) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return sum(len(text) for text in texts if isinstance(text, str))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
