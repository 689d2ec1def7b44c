"""The one client of all servers, in a process of its own: so many requests at a time, counted."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Question:
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` is 0 where there was no answer, and ``trouble`` says what else was wrong."""

    status: int
    seconds: float
    prompt_tokens: int = 0
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


def ask(questions: Sequence[Question], at_once: int | None = None) -> Load:
    """Ask, ``at_once`` at a time, or all together; answers are in the order of the questions."""
    order = {
        "at_once": at_once or len(questions),
        "questions": [asdict(question) for question in questions],
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(order).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    return Load(found["seconds"], [Answer(**answer) for answer in found["answers"]])


def main() -> None:
    order = json.load(sys.stdin)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = asyncio.run(_ask_all(order["questions"], order["at_once"]))
    json.dump(asdict(load), sys.stdout)


async def _ask_all(questions: list[dict[str, Any]], at_once: int) -> Load:
    prepared = [(one["url"], json.dumps(one["body"]).encode()) for one in questions]
    slots = asyncio.Semaphore(at_once)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Content-Type": "application/json"},
    )

    async def one(url: str, body: bytes) -> Answer:
        async with slots:
            return await _ask_one(session, url, body)

    async with session:
        began = time.perf_counter()
        answers = await asyncio.gather(*(one(url, body) for url, body in prepared))
        return Load(time.perf_counter() - began, answers)


async def _ask_one(session: aiohttp.ClientSession, url: str, body: bytes) -> Answer:
    began = time.perf_counter()
    try:
        async with session.post(url, data=body) as response:
            text = await response.read()
            status = response.status
    except (aiohttp.ClientError, OSError) as error:
        return Answer(0, time.perf_counter() - began, trouble=repr(error))
    return _judged(status, text, time.perf_counter() - began)


def _judged(status: int, text: bytes, seconds: float) -> Answer:
    if status != 200:
        return Answer(status, seconds, trouble=f"HTTP {status}: {text[:200]!r}")
    document = json.loads(text)
    usage = document["usage"]
    reason = document["choices"][0]["finish_reason"]
    trouble = "" if reason in ("stop", "length") else f"finish_reason {reason}"
    counted = usage["prompt_tokens"], usage["completion_tokens"]
    return Answer(status, seconds, *counted, trouble)


if __name__ == "__main__":
    main()
