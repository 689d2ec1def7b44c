"""A bounded stream of requests to a reward service, each of which must be answered right.

An attempt ends with the right answer, or with a clear error that can be retried; it is repeated
until it is answered. Everything else is a finding.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from tests.endurance.answers import Answer

# Seconds: what requests ask for, until an attempt hangs, and until an answer is given up.
DEADLINE, _HANGS, _GIVEN_UP = 120.0, 180.0, 1800.0
_RETRYABLE = (429, 503, 504)
_AT_ONCE = 200

Found = Callable[[str, str], None]
"""Takes a finding: what does not hold, and what was seen."""


@dataclass
class Tally:
    """Counts of the traffic: requests by kind, attempts to retry by reason, seconds of answers."""

    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


class RetryableError(Exception):
    """An attempt that ended with an error to retry, after ``wait`` seconds."""

    def __init__(self, reason: str, wait: float) -> None:
        super().__init__(reason)
        self.wait = wait


class LeftError(Exception):
    """An attempt that was broken off on purpose."""


class WrongError(Exception):
    """An attempt that ended in a way in which none may."""


class Traffic:
    """Requests of the main routes, drawn from a seed.

    Args:
        url: Address of the service.
        answers: Completions to ask about.
        random: Draws everything.
        found: Takes findings.

    Attributes:
        expected: Status and score of each answer, and what each program prints.
    """

    def __init__(self, url: str, answers: Sequence[Answer], random: Random, report: Found) -> None:
        self.tally = Tally()
        self.expected: dict[str, object] = {}
        self._url, self._answers, self._random, self._found = url, answers, random, report
        self._weights = [answer.weight for answer in answers]
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Traffic":
        # Without kept connections, none is closed by the service just as it is used again.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        timeout = aiohttp.ClientTimeout(None)
        self._client = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def learn(self) -> None:
        """Ask for the figures of each answer and program, and expect them from here on."""
        several = asyncio.Semaphore(4)

        async def learn(name: str, path: str, body: dict[str, Any]) -> None:
            async with several:
                while name not in self.expected:
                    try:
                        self.expected[name] = figures(await self._post(path, body))
                    except RetryableError as error:
                        await asyncio.sleep(error.wait)

        await asyncio.gather(
            *(learn(answer.name, "/v1/score", self._item(answer)) for answer in self._answers),
            *(learn(name, "/v1/run", _program_body(name)) for name in _PROGRAMS),
        )
        for answer in self._answers:
            status = str(self.expected[answer.name][0])  # type: ignore[index]
            if answer.allowed and status not in answer.allowed:
                self._found("rewards are right", f"{answer.name}: {status}")

    async def run(self, seconds: float, rate: float) -> None:
        """Send requests, so many a second by chance, until the time is over; then wait for all."""
        ends = time.monotonic() + seconds
        while (now := time.monotonic()) < ends:
            if len(self._tasks) < _AT_ONCE:
                kind = self._random.choices([*_KINDS], [weight for weight, _ in _KINDS.values()])[0]
                self.tally.asked[kind] += 1
                task = asyncio.create_task(self._until_answered(kind, self._random.getrandbits(64)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(min(self._random.expovariate(rate), ends - now))
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_answered(self, kind: str, seed: int) -> None:
        began = time.monotonic()
        while (attempt := time.monotonic()) - began < _GIVEN_UP:
            try:
                async with asyncio.timeout(_HANGS):
                    await _KINDS[kind][1](self, Random(seed))  # the same request in every attempt
            except RetryableError as error:
                self.tally.retried[str(error)] += 1
                await asyncio.sleep(error.wait)
            except TimeoutError:
                self._found("no request hangs", kind)
                return
            except (aiohttp.ClientError, OSError) as error:
                self._found("no connection breaks by itself", f"{kind}: {error!r}")
                return
            except WrongError as error:
                self._found("every answer is right, or says what is wrong", f"{kind}: {error}")
                return
            except LeftError:
                self.tally.left[kind] += 1
                return
            else:
                self.tally.answered[kind] += 1
                self.tally.seconds.append(time.monotonic() - attempt)
                return
        self._found("every request is answered", kind)

    # Kinds of requests

    async def _single(self, draw: Random) -> None:
        answer = self._drawn(draw)
        self._check(answer, await self._post("/v1/score", self._item(answer, draw)))

    async def _batch(self, draw: Random) -> None:
        asked = [self._drawn(draw) for _ in range(draw.randint(1, 6))]
        items = [self._item(answer, draw) for answer in asked]
        results = (await self._post("/v1/score", {"items": items, "deadline": DEADLINE}))["results"]
        for answer, result in zip(asked, results, strict=True):
            if result["judged"]:
                self._check(answer, result)
        for result in results:
            if not result["judged"]:
                raise RetryableError(_reason(result["reason"]), float(result["retry_after"]))

    async def _program(self, draw: Random) -> None:
        name = draw.choice([*_PROGRAMS])
        seen = figures(await self._post("/v1/run", _program_body(name)))
        if seen != self.expected[name]:
            raise WrongError(f"{name}: {seen}, not {self.expected[name]}")

    async def _left(self, draw: Random) -> None:
        """Go away while a request is judged, or just before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(draw.choice([0.01, 0.1, 0.5, 2.0])):
                await self._batch(draw)
        raise LeftError

    # Parts of requests

    def _drawn(self, draw: Random) -> Answer:
        return draw.choices(self._answers, self._weights)[0]

    def _item(self, answer: Answer, draw: Random | None = None) -> dict[str, Any]:
        number = draw.getrandbits(40) if draw else 0
        item: dict[str, Any] = {"completion": answer.text(number), "id": number}
        if answer.named is None or (draw and draw.random() < 0.5):
            return item | {"ground_truth": answer.label}
        return item | {"dataset": answer.named[0], "problem_id": answer.named[1]}

    async def _post(self, path: str, body: object) -> Any:
        async with self._client.post(self._url + path, json=body) as response:
            text = await response.read()
        try:
            document = json.loads(text)
        except ValueError:
            raise WrongError(f"{response.status} without JSON: {text[:200]!r}") from None
        if response.status == 200:
            return document
        reason = document.get("error") if isinstance(document, dict) else None
        if not isinstance(reason, str) or not reason:
            raise WrongError(f"{response.status} without a reason: {text[:200]!r}")
        if response.status not in _RETRYABLE:
            raise WrongError(f"{response.status}: {reason[:200]}")
        wait = float(response.headers.get("Retry-After", "1"))
        raise RetryableError(f"{response.status}: {_reason(reason)}", wait)

    def _check(self, answer: Answer, result: Mapping[str, Any]) -> None:
        seen, expected = figures(result), self.expected[answer.name]
        right = result["status"] in answer.allowed if answer.allowed else seen == expected
        if not right:
            what = "rewards are those of an undisturbed service"
            self._found(what, f"{answer.name}: {seen}, not {expected}")


def figures(result: Mapping[str, Any]) -> tuple[object, ...]:
    """What must be the same whenever an answer is judged, or a program runs."""
    names = ("status", "score", "cases_passed", "cases_total", "stdout", "exit_code")
    return tuple(result.get(name) for name in names)


def _program_body(name: str) -> dict[str, Any]:
    return {"timeout": 2.0, "deadline": DEADLINE, **_PROGRAMS[name]}


def _reason(text: str) -> str:
    """A reason without what differs from one time to the next."""
    return re.sub(r"[0-9]+(?:\.[0-9]+)?", "N", text)[:80]


_PROGRAMS: dict[str, dict[str, Any]] = {
    "sum": {"code": "print(sum(map(int, input().split())))", "stdin": "3 4\n"},
    "exit code": {"code": "print('before')\nraise SystemExit(3)"},
    "sleeps": {"code": "import time\ntime.sleep(100)", "timeout": 0.5},
    "much output": {"code": "print('x' * 100_000)"},
    "shell": {"code": "echo $((6 * 7))", "language": "bash"},
}
_KINDS: dict[str, tuple[float, Callable[[Traffic, Random], Awaitable[None]]]] = {
    "one completion": (20, Traffic._single),
    "batch": (10, Traffic._batch),
    "program": (8, Traffic._program),
    "left": (6, Traffic._left),
}
