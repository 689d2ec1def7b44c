"""Odd answers of OpenAI-compatible servers: what becomes of the sample, and of the command.

Each case is a server that answers every request like this, or once and then with the recorded
completion. The exit codes are those of `plumb run` over one sample: 0 for an answer, 1 if the
sample is left unjudged, 2 if the run ends.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from services.runner.client import GeneratorClient
from services.runner.outages import watch_outages
from services.runner.responses import RejectedError, RetryableError, read_completion
from shared.errors import IncompleteRunError, ServiceError
from shared.schemas import Generation
from shared.service.processes import with_watch
from tests.runner.generators import Notes, Servers, ask

CODE = "print(1 + 1)"
ANSWERED, UNJUDGED, ENDED = 0, IncompleteRunError.exit_code, ServiceError.exit_code


@dataclass(frozen=True)
class Case:
    """A server's answer (a named fault, or a status with headers and body), and what is right.

    ``text`` is the completion of an answered sample, else the beginning of the reason or a part
    of the error that ends the run. ``requests`` is the number of requests, if it is certain.
    """

    name: str
    exit_code: int
    text: str = CODE
    fault: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = ""
    once: bool = False
    requests: int | None = None
    tokens: int | None = None
    reasoning: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def answer(content: object = CODE, finish: object = "stop", **fields: object) -> dict[str, object]:
    """The body of an answer; ``fields`` beside content belong to the message."""
    message = {"role": "assistant", "content": content, **fields}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def error(message: str, code: object = None, kind: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "code": code}}


PLAIN = answer()
CHOICE = {"message": {"content": CODE}, "finish_reason": "stop"}
OTHER = {"index": 1, "message": {"content": "other"}, "finish_reason": "stop"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
TEXT = {"type": "text", "text": CODE}
NO_THOUGHTS = {"reasoning": "ignore"}

CASES = [
    # Answers of other shapes
    Case("plain", ANSWERED, body=PLAIN, requests=1),
    Case("201", ANSWERED, status=201, body=PLAIN),
    Case("parts", ANSWERED, body=answer([TEXT])),
    Case("one part, not in a list", ANSWERED, body=answer(TEXT)),
    Case("parts with an image", ANSWERED, body=answer([{"type": "image_url"}, TEXT])),
    Case("parts that are strings", ANSWERED, body=answer(["print", "(1 + 1)"])),
    Case("thoughts among the parts", ANSWERED, body=answer([THOUGHT, TEXT]), reasoning="hm"),
    Case("reasoning alone", ANSWERED, body=answer(None, reasoning_content=CODE)),
    Case("reasoning alone, OpenRouter's name", ANSWERED, body=answer(None, reasoning=CODE)),
    Case("reasoning alone, blank content", ANSWERED, body=answer("\n\n", reasoning=CODE)),
    Case("reasoning ignored", ANSWERED, "", body=answer(None, reasoning="a"), reasoning="a",
         settings=NO_THOUGHTS),
    Case("reasoning cut", ANSWERED, "", body=answer("", "length", reasoning="a"), reasoning="a"),
    Case("reasoning and content", ANSWERED, body=answer(reasoning_content="a"), reasoning="a"),
    Case("reasoning of a wrong type", ANSWERED, body=answer(reasoning_content=7)),
    Case("nothing", ANSWERED, "", body=answer("")),
    Case("choices in another order", ANSWERED, body={"choices": [OTHER, {"index": 0, **CHOICE}]}),
    Case("choices without index", ANSWERED, body={"choices": [CHOICE, OTHER]}),
    Case("a text as of a completion", ANSWERED,
         body={"choices": [{"text": CODE, "finish_reason": "stop"}]}),
    Case("usage is a string", ANSWERED, body={**PLAIN, "usage": "none"}),
    Case("usage is a list", ANSWERED, body={**PLAIN, "usage": [3]}),
    Case("one count is odd", ANSWERED, tokens=7,
         body={**PLAIN, "usage": {"prompt_tokens": "many", "completion_tokens": 7.0}}),
    Case("a negative count", ANSWERED, body={**PLAIN, "usage": {"completion_tokens": -1}}),
    Case("a byte order mark", ANSWERED, body="\ufeff" + json.dumps(PLAIN)),
    Case("a count beyond 64 bits", ANSWERED, body={**PLAIN, "usage": {"completion_tokens": 1e300}}),
    Case("a lone surrogate", ANSWERED, "a\ufffdb\U0001f600", body=answer("a\ud800b\U0001f600")),
    # Finish reasons
    *[Case(f"finish {word}", ANSWERED, body=answer(finish=word))
      for word in ("length", "tool_calls", "STOP", "MAX_TOKENS", "end_turn", "model_length")],
    Case("no finish reason", ANSWERED, body=answer(finish=None)),
    Case("a finish reason of the config", ANSWERED, body=answer(finish="done"),
         settings={"finish_reasons": ["done"]}),
    Case("neither text nor finish reason", UNJUDGED, "unfinished: ", body=answer("", None)),
    Case("an unknown finish reason", UNJUDGED, "unfinished: finish_reason 'done'", requests=3,
         body=answer(finish="done")),
    Case("error", UNJUDGED, "unfinished: finish_reason 'error'", body=answer("pri", "error"),
         requests=3),
    Case("error once", ANSWERED, body=answer("pri", "error"), once=True, requests=2),
    Case("abort", UNJUDGED, "unfinished: finish_reason 'abort'", body=answer("pri", "abort"),
         requests=3),
    Case("an error in the choice", UNJUDGED, "unfinished: finish_reason 'stop' (out of memory)",
         body={"choices": [{**CHOICE, "error": {"message": "out of memory", "code": 502}}]}),
    Case("an error and no message", UNJUDGED, "unfinished: finish_reason 'error' (broken)",
         body={"choices": [{"message": None, "finish_reason": "error", "error": "broken"}]}),
    Case("content filter", UNJUDGED, "content_filter: ", body=answer("", "content_filter"),
         requests=1),
    Case("safety", UNJUDGED, "content_filter: finish_reason 'SAFETY'", body=answer("", "SAFETY")),
    Case("content filter of Azure", UNJUDGED, "content_filter: filtered", status=400,
         body=error("filtered", "content_filter")),
    Case("refusal", UNJUDGED, "refusal: I can't", body=answer(None, refusal="I can't"), requests=1),
    # Bodies that are no answers
    Case("an error with 200", UNJUDGED, "bad_answer: broken", body=error("broken")),
    Case("an error with 200 and a code", ANSWERED, body=error("later", 503), once=True),
    Case("a page", UNJUDGED, "bad_answer: not JSON: <html>", body="<html>upstream</html>",
         requests=3),
    Case("a stream", UNJUDGED, "bad_answer: not JSON: data:", body="data: {}\n\ndata: [DONE]\n"),
    Case("no choices", UNJUDGED, "bad_answer: ", body={"choices": []}),
    Case("content is a number", UNJUDGED, "bad_answer: ", body=answer(42)),
    Case("nothing at all", UNJUDGED, "bad_answer: ", status=204),
    # Refusals of one request
    Case("bad request", UNJUDGED, "http_400: no", status=400, body=error("no"), requests=1),
    Case("wrong key", UNJUDGED, "http_401: ", fault="401", requests=1),
    Case("not found", UNJUDGED, "http_404: ", fault="404", requests=1),
    Case("moved", UNJUDGED, "http_301: no message; it names https://other/v1", status=301,
         headers={"Location": "https://other/v1"}, requests=1),
    Case("too long", UNJUDGED, "prompt_too_long: ", fault="too_long", requests=1),
    Case("too long, LiteLLM", UNJUDGED, "prompt_too_long: ", status=400,
         body=error("litellm.ContextWindowExceededError: mock", "400")),
    Case("too long by code", UNJUDGED, "prompt_too_long: no", status=400,
         body=error("no", "context_length_exceeded")),
    # Failures that pass
    *[Case(f"{fault} once", ANSWERED, fault=fault, once=True, requests=2)
      for fault in ("408", "409", "424", "425", "429:0", "500", "502", "503", "504", "529", "reset",
                    "truncated")],
    Case("a model that loads", ANSWERED, status=404, body=error("the model is loading"), once=True),
    # Refusals of all requests end the run
    *[Case(f"{fault} for ever", ENDED, f"answers HTTP {fault[:3]}", fault=fault)
      for fault in ("500", "502", "503", "429:0.05")],
    Case("a model that is never there", ENDED, "does not exist", status=404,
         body=error("The model `m` does not exist.", "model_not_found")),
    Case("broken connections", ENDED, "does not answer", fault="reset"),
    Case("no quota", ENDED, "see the account", status=429,
         body=error("You exceeded your current quota", "insufficient_quota")),
    Case("no credit", ENDED, "HTTP 402", status=402, body=error("Insufficient Balance")),
    Case("the budget of a proxy", ENDED, "see the account", status=400,
         body=error("Budget has been exceeded! Current cost: 2", "400", "budget_exceeded")),
    Case("a day's wait", ENDED, "see the account", fault="429:86400"),
    Case("a day's wait, 503", ENDED, "see the account", fault="503:86400"),
]  # fmt: skip


async def test_each_answer_has_its_outcome(servers: Servers) -> None:
    """Also that a server which never answers ends the run with its last message."""
    assert len(CASES) >= 40

    async def judged(case: Case) -> str | None:
        """What is wrong; None if nothing is."""
        answer = {"status": case.status, "headers": case.headers, "body": case.body}
        url = await servers.replay(case.fault or answer, once=case.once)
        client = await servers.client(url, **case.settings, retry_budget=0.6)
        exit_code, text, found = await outcome(client)
        wanted = text == case.text if exit_code == ANSWERED else case.text in text
        if (exit_code, wanted) != (case.exit_code, True):
            return f"{case.name}: exit code {exit_code}, {text!r}"
        if found and case.requests not in (None, found.requests):
            return f"{case.name}: {found.requests} requests"
        own = found and exit_code == ANSWERED and not case.fault and not case.once
        if own and (found.reasoning, found.output_tokens) != (case.reasoning, case.tokens):
            return f"{case.name}: {found.reasoning!r}, {found.output_tokens} tokens"
        return None

    wrong = await asyncio.gather(*map(judged, CASES))
    assert list(filter(None, wrong)) == []


async def outcome(client: GeneratorClient) -> tuple[int, str, Generation | None]:
    """The exit code; the completion, the reason why there is none, or the error of the run."""
    generations: list[Generation] = []

    async def work() -> None:
        generations.append(await ask(client))

    checks = [lambda: client.trouble(1)]
    try:
        await with_watch(work, partial(watch_outages, Notes(), checks, tick=0.02))
    except ServiceError as ended:
        return ended.exit_code, str(ended), None
    (found,) = generations
    if found.error is None:
        return ANSWERED, found.completion, found
    return UNJUDGED, found.error, found


WORDS = ["thinking", "reasoning", "finish_reason", "stop", "completion_tokens"]
KEYS = ["choices", "message", "content", "text", "type", "index"]
KEYS += ["error", "usage", "code", "refusal"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS + WORDS), inner),
    max_leaves=15,
)


@settings(max_examples=50)
@given(st.sampled_from([200, 400, 404, 503]), JSON, JSON)
def test_any_json_is_an_answer_or_a_known_error(status: int, part: object, usage: object) -> None:
    for choice in (part, {"message": part}, {"message": {"content": part}}):
        body = json.dumps({"choices": [choice], "usage": usage, "error": part})
        for document in (body, json.dumps(part)):
            with suppress(RetryableError, RejectedError):
                completion = read_completion(status, {}, document.encode())
                assert completion.completion.encode() is not None
