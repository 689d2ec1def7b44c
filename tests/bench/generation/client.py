"""Load generator in a separate process, with a fixed number of concurrent requests."""

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp
import uvloop

_REPLICA_HEADER = "X-Plumbline-Replica"  # not imported: each client would import the router


@dataclass(frozen=True, slots=True)
class Question:
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` is 0 where there was no answer, and ``trouble`` says what else was wrong.

    ``ended`` is seconds since the first request; ``replica`` is the router's name of the replica,
    else the address that was asked.
    """

    status: int
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    trouble: str = ""
    ended: float = 0.0
    replica: str = ""


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


def ask(questions: Sequence[Question], at_once: int | None = None, processes: int = 1) -> Load:
    """Ask, each process ``at_once`` at a time, or all together.

    Several processes are for several replicas, where one would be what is measured. They begin at
    the same moment; answers are in the order of the questions.
    """
    orders = [
        {"at_once": at_once or len(part), "questions": [asdict(question) for question in part]}
        for part in (questions[number::processes] for number in range(processes))
    ]
    begin = [_begin(order) for order in orders]
    for process in begin:
        _line(process)  # it has read its order
    began = time.perf_counter()
    for process in begin:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    found = [json.loads(_line(process)) for process in begin]
    seconds = time.perf_counter() - began if processes > 1 else found[0]["seconds"]
    answers = [Answer(0, 0.0)] * len(questions)
    for number, (process, part) in enumerate(zip(begin, found, strict=True)):
        answers[number::processes] = [Answer(**answer) for answer in part["answers"]]
        process.wait()
    return Load(seconds, answers)


def _begin(order: dict[str, Any]) -> subprocess.Popen[bytes]:
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
    load = uvloop.run(_ask_all(order["questions"], order["at_once"]))
    _write_all(sys.stdout.fileno(), json.dumps(asdict(load)).encode() + b"\n")


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to a pipe that the loop may have left non-blocking, where ``print`` loses the rest."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


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
            answer = await _ask_one(session, url, body)
            return replace(answer, ended=time.perf_counter() - began)

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
            replica = response.headers.get(_REPLICA_HEADER, response.url.authority)
    except (aiohttp.ClientError, OSError) as error:
        return Answer(0, time.perf_counter() - began, trouble=repr(error))
    return replace(_judged(status, text, time.perf_counter() - began), replica=replica)


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
