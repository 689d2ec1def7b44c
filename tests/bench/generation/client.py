"""Load generator in a separate process: random prompts, the same for every server, all at once."""

import asyncio
import json
import os
import random
import resource
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import aiohttp
import uvloop

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
    """Ask all at once.

    Several processes are for several replicas, where one would be what is measured. They begin at
    the same moment.
    """
    parts = [questions[number::processes] for number in range(processes)]
    begin = [_begin([asdict(question) for question in part]) for part in parts]
    for process in begin:
        _line(process)  # it has read its order
    began = time.perf_counter()
    for process in begin:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    loads = [json.loads(_line(process)) for process in begin]
    seconds = time.perf_counter() - began if processes > 1 else loads[0]["seconds"]
    for process in begin:
        process.wait()
    return Load(seconds, [Answer(**answer) for load in loads for answer in load["answers"]])


def _begin(order: list[dict[str, Any]]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"the client ended with exit code {process.wait()}")
    return line


def main() -> None:
    order = json.loads(sys.stdin.readline())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("ready", flush=True)
    sys.stdin.readline()
    load = uvloop.run(_ask_all(order))
    _write_all(sys.stdout.fileno(), json.dumps(asdict(load)).encode() + b"\n")


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to a pipe that the loop may have left non-blocking, where ``print`` loses the rest."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


async def _ask_all(questions: list[dict[str, Any]]) -> Load:
    prepared = [(one["url"], json.dumps(one["body"]).encode()) for one in questions]
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Content-Type": "application/json"},
    )
    async with session:
        began = time.perf_counter()
        answers = await asyncio.gather(*(_ask_one(session, *one) for one in prepared))
        return Load(time.perf_counter() - began, answers)


async def _ask_one(session: aiohttp.ClientSession, url: str, body: bytes) -> Answer:
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


if __name__ == "__main__":
    main()
