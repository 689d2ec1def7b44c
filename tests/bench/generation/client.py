"""Load generator in a separate process: random prompts, the same for every server, all at once."""

import asyncio
import json
import random
import resource
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import uvloop

from tests.bench.generation.routers import process

_FIRST_TOKEN = 10  # below it, vocabularies have their special tokens
_LENGTHS = (0.75, 1.25)


@dataclass(frozen=True, slots=True)
class Question:
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of an answer, and what was wrong with it."""

    completion_tokens: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """What became of all requests; ``seconds`` go from the first one to the last answer."""

    seconds: float
    answers: Sequence[Answer]

    @property
    def tokens(self) -> int:
        return sum(answer.completion_tokens for answer in self.answers)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.trouble]


def prompts(count: int, tokens: int, vocabulary: int, seed: int | str) -> list[list[int]]:
    """Token ids, around ``tokens`` of them in each. Another seed has no prefix in common."""
    chance = random.Random(seed)
    low, high = (int(tokens * factor) for factor in _LENGTHS)
    # Its upper part may hold what the tokenizer does not have.
    ids = range(_FIRST_TOKEN, max(_FIRST_TOKEN + 1, vocabulary // 2))
    return [chance.choices(ids, k=chance.randint(low, high)) for _ in range(count)]


def questions(
    urls: Sequence[str], model: str, asked: Sequence[list[int]], new_tokens: int
) -> list[Question]:
    """One greedy answer of exactly ``new_tokens`` for each prompt, from the servers in turn."""
    return [
        Question(
            f"{url}/v1/completions",
            {
                "model": model,
                "prompt": prompt,
                "max_tokens": new_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
        )
        for url, prompt in zip(cycle(urls), asked, strict=False)
    ]


def ask(questions: Sequence[Question], processes: int = 1) -> Load:
    """Send all requests at once, from ``processes`` processes that start at the same moment.

    Several replicas need several, because a single client would be the bottleneck.
    """
    with ExitStack() as stack:
        pipes = [stack.enter_context(process(_client))[1] for _ in range(processes)]
        for number, pipe in enumerate(pipes):
            pipe.send(questions[number::processes])
        for pipe in pipes:
            pipe.recv()  # it has read its requests
        began = time.perf_counter()
        for pipe in pipes:
            pipe.send("go")
        loads: list[Load] = [pipe.recv() for pipe in pipes]
        seconds = time.perf_counter() - began if processes > 1 else loads[0].seconds
    return Load(seconds, [answer for load in loads for answer in load.answers])


def _client(pipe: Connection) -> None:
    questions = pipe.recv()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pipe.send("ready")
    pipe.recv()
    pipe.send(uvloop.run(_ask_all(questions)))


async def _ask_all(questions: Sequence[Question]) -> Load:
    prepared = [(question.url, json.dumps(question.body).encode()) for question in questions]
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Content-Type": "application/json"},
    )
    async with session:
        began = time.perf_counter()
        answers = await asyncio.gather(*(_ask(session, url, body) for url, body in prepared))
        return Load(time.perf_counter() - began, answers)


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes) -> Answer:
    try:
        async with session.post(url, data=body) as response:
            text, status = await response.read(), response.status
    except (aiohttp.ClientError, OSError) as error:
        return Answer(trouble=repr(error))
    if status != 200:
        return Answer(trouble=f"HTTP {status}: {text[:200]!r}")
    document = json.loads(text)
    reason = document["choices"][0]["finish_reason"]
    trouble = "" if reason in ("stop", "length") else f"finish_reason {reason}"
    return Answer(document["usage"]["completion_tokens"], trouble)
