"""A bounded stream of requests to a reward service, each of which must be answered right.

An attempt ends with the right answer, or with a clear error that can be retried; it is repeated
until it is answered. Everything else is a finding.
"""

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.endurance.answers import Answer
from tests.endurance.connections import CuttableProxy

# Seconds: what requests ask for, until an attempt hangs, and until an answer is given up.
DEADLINE, _HANGS, _GIVEN_UP = 120.0, 180.0, 1800.0
_RETRYABLE = (429, 503, 504)
_LINES = "application/x-ndjson"
_PROMPT, _END = "<|im_start|>user\nSolve it.<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n"
_AT_ONCE = 200

Found = Callable[[str, str], None]
"""Takes a finding: what does not hold, and what was seen."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What must be the same in every judgement of an answer."""

    status: str
    accepted: bool
    pass_ratio: float
    cases: tuple[int, int]

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Figures":
        cases = result["cases_passed"], result["cases_total"]
        return cls(result["status"], result["accepted"], result["pass_ratio"], cases)


@dataclass
class Tally:
    """Counts of the traffic.

    Attributes:
        asked: Requests, by kind.
        answered: Requests that got the right answer, by kind.
        left: Requests that their client broke off, by kind.
        retried: Attempts that ended with an error to retry, by what it was.
        responses: Complete responses, by route and code.
        broken: Attempts without one, by route: cut, left, or given up.
        scored: Judged results in complete responses.
        cached: Those of them that were remembered.
        seconds: Latency of each attempt that was answered.
    """

    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    responses: Counter[tuple[str, int]] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    scored: int = 0
    cached: int = 0
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


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise WrongError(f"{self.code} without JSON: {self.body[:200]!r}") from None


class Traffic:
    """Requests of all routes, drawn from a seed.

    Args:
        proxy: The way to the service.
        answers: Completions to ask about.
        random: Draws everything.
        found: Takes findings.
    """

    def __init__(
        self, proxy: CuttableProxy, answers: Sequence[Answer], random: Random, found: Found
    ) -> None:
        self.tally = Tally()
        self.expected: dict[str, Figures] = {}
        self.programs: dict[str, ProgramFigures] = {}
        self._proxy = proxy
        self._answers = answers
        self._weights = [one.weight for one in answers]
        self._random = random
        self._found = found
        self._earlier: deque[tuple[Answer, int]] = deque(maxlen=500)
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

    @property
    def open(self) -> int:
        """Requests that are not answered yet."""
        return len(self._tasks)

    async def learn(self) -> None:
        """Ask for each answer's and each program's figures, and expect them from here on."""
        several = asyncio.Semaphore(4)
        await asyncio.gather(*(self._learn(answer, several) for answer in self._answers))
        for name in _PROGRAMS:
            result = await self._answered("/v1/run", _program_body(name))
            self.programs[name] = ProgramFigures.of(result)

    async def _learn(self, answer: Answer, several: asyncio.Semaphore) -> None:
        body = self._single_body(answer, self._random.getrandbits(40), "id")
        async with several:
            figures = Figures.of(await self._answered("/v1/score", body))
        self.expected[answer.name] = figures
        if answer.allowed and figures.status not in answer.allowed:
            self._found("rewards are right", f"{answer.name}: {figures.status}")

    async def _answered(self, path: str, body: dict[str, Any]) -> Any:
        """The answer of a service that is slow, if need be, but undisturbed."""
        ends = time.monotonic() + _GIVEN_UP
        while True:
            try:
                return self._judged(await self._post(path, body))
            except RetryableError as error:
                if time.monotonic() > ends:
                    raise
                await asyncio.sleep(error.wait)

    async def run(self, seconds: float, rate: float) -> None:
        """Send requests, so many a second by chance, until the time is over; then wait for all."""
        ends = time.monotonic() + seconds
        while (now := time.monotonic()) < ends:
            if len(self._tasks) < _AT_ONCE:
                self._start()
            await asyncio.sleep(min(self._random.expovariate(rate), ends - now))
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        weights = [weight for weight, _ in _KINDS.values()]
        kind = self._random.choices([*_KINDS], weights)[0]
        self.tally.asked[kind] += 1
        task = asyncio.create_task(self._until_answered(kind, self._random.getrandbits(64)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_answered(self, kind: str, seed: int) -> None:
        ask = _KINDS[kind][1]
        began = time.monotonic()
        while time.monotonic() - began < _GIVEN_UP:
            attempt = time.monotonic()
            try:
                async with asyncio.timeout(_HANGS):
                    await ask(self, Random(seed))  # the same request in every attempt
            except RetryableError as error:
                self.tally.retried[str(error)] += 1
                await asyncio.sleep(error.wait)
            except TimeoutError:
                self._found("no request hangs", kind)
                return
            except (aiohttp.ClientError, OSError, EOFError) as error:
                if self._proxy.cut_at < attempt:
                    self._found("no connection breaks by itself", f"{kind}: {error!r}")
                self.tally.retried["connection cut"] += 1
                await asyncio.sleep(1)
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
        answer, number = self._drawn(draw)
        response = await self._post("/v1/score", self._single_body(answer, number, _way(draw)))
        self._check_result(answer, self._judged(response))

    async def _repeated(self, draw: Random) -> None:
        answer, number = draw.choice(self._earlier) if self._earlier else self._drawn(draw)
        response = await self._post("/v1/score", self._single_body(answer, number, _way(draw)))
        self._check_result(answer, self._judged(response))

    async def _batch(self, draw: Random) -> None:
        asked, body, score_of = self._batch_body(draw, 4)
        results = self._judged(await self._post("/v1/score", body))["results"]
        if len(results) != len(asked):
            raise WrongError(f"{len(results)} results of {len(asked)}")
        self._check_results(asked, results, score_of)

    async def _stream(self, draw: Random, pause: float = 0.0) -> None:
        asked, body, score_of = self._batch_body(draw, 6)
        found: dict[int, Any] = {}
        last: dict[str, Any] | None = None
        url, headers = f"{self._proxy.url}/v1/score", {"Accept": _LINES}
        with self._attempt("/v1/score") as done:
            async with self._client.post(url, json=body, headers=headers) as response:
                if response.status != 200:
                    read = Response(response.status, response.headers, await response.read())
                    done(read.code)
                    self._judged(read)
                async for line in response.content:
                    one = json.loads(line)
                    if last is not None or one.get("index") in found:
                        raise WrongError(f"a line too many: {line[:200]!r}")
                    if "done" in one:
                        last = one
                    else:
                        found[one.pop("index")] = one
                    await asyncio.sleep(pause)
                if last is None:
                    raise EOFError("the stream has no last line")
                done(200)
        if sorted(found) != list(range(len(asked))):
            raise WrongError(f"indexes {sorted(found)} of {len(asked)}")
        judged = sum(one["judged"] for one in found.values())
        if (last["judged"], last["unjudged"]) != (judged, len(asked) - judged):
            raise WrongError(f"the last line is {last}, {judged} are judged")
        self._check_results(asked, [found[index] for index in range(len(asked))], score_of)

    async def _slow_reader(self, draw: Random) -> None:
        await self._stream(draw, pause=0.5)

    async def _program(self, draw: Random) -> None:
        program = draw.choice([*_PROGRAMS])
        result = self._judged(await self._post("/v1/run", _program_body(program)))
        if (figures := ProgramFigures.of(result)) != self.programs[program]:
            raise WrongError(f"{program}: {figures}, not {self.programs[program]}")

    async def _facts(self, draw: Random) -> None:
        path = draw.choice(["/v1/info", "/readyz", "/healthz", "/metrics", "/openapi.json"])
        with self._attempt(path) as done:
            async with self._client.get(self._proxy.url + path) as answer:
                response = Response(answer.status, answer.headers, await answer.read())
                done(response.code)
        if path == "/readyz" and response.code == 503:
            raise RetryableError("503 of /readyz", 1.0)
        if response.code != 200:
            raise WrongError(f"{path}: {response.code}: {response.body[:200]!r}")
        if path == "/v1/info" and (distrust := response.json()["distrust"]):
            raise WrongError(f"sandboxes are distrusted: {distrust}")

    async def _wrong(self, draw: Random) -> None:
        route, body, code = draw.choice(_WRONG)
        if isinstance(body, dict) and "items" in body and body["items"]:
            answer, number = self._drawn(draw)
            body = {"items": [self._item(answer, number, "id"), *body["items"]]}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await self._post(route, data)
        if response.code in _RETRYABLE:
            self._judged(response)
        text = response.json().get("error")
        if response.code != code or not text or not isinstance(text, str):
            raise WrongError(f"{route} with {data[:80]!r}: {response.code}: {text!r}")

    async def _slow(self, draw: Random) -> None:
        """Send a request in pieces, and read the answer in pieces."""
        answer, number = self._drawn(draw)
        data = json.dumps(self._single_body(answer, number, _way(draw))).encode()
        with self._attempt("/v1/score") as done:
            reader, writer = await self._connected(len(data))
            try:
                size = len(data) // 8 + 1
                for start in range(0, len(data), size):
                    writer.write(data[start : start + size])
                    await writer.drain()
                    await asyncio.sleep(draw.uniform(0.1, 1.0))
                found = b""
                while piece := await reader.read(64):
                    found += piece
                    await asyncio.sleep(0.02)
            finally:
                writer.transport.abort()
            head, _, content = found.partition(b"\r\n\r\n")
            if not content:
                raise EOFError("no complete response")
            lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:])
            response = Response(int(lines[0].split()[1]), headers, content)
            done(response.code)
        self._check_result(answer, self._judged(response))

    async def _left(self, draw: Random) -> None:
        """Go away while a request is judged, or just before."""
        _, body, _ = self._batch_body(draw, 4)
        path = draw.choice(["/v1/score", "/v1/run"])
        if path == "/v1/run":
            body = _program_body(draw.choice([*_PROGRAMS]))
        with suppress(TimeoutError):
            async with asyncio.timeout(draw.choice([0.01, 0.1, 0.5, 2.0])):
                await self._post(path, body)
        raise LeftError

    async def _stalled(self, draw: Random) -> None:
        """Promise a body, send half of it, and go away after a while."""
        with self._attempt("/v1/score"):
            _, writer = await self._connected(10_000)
            writer.write(b"{" + b" " * 5000)
            await asyncio.sleep(draw.choice([1.0, 20.0]))
            writer.transport.abort()
        raise LeftError

    # Parts of requests

    def _drawn(self, draw: Random) -> tuple[Answer, int]:
        answer = draw.choices(self._answers, self._weights)[0]
        number = draw.getrandbits(40)
        self._earlier.append((answer, number))
        return answer, number

    def _item(self, answer: Answer, number: int, way: str) -> dict[str, Any]:
        item: dict[str, Any] = {"completion": answer.text(number), "id": number}
        if answer.named is None or way == "label":
            return item | {"ground_truth": answer.label}
        item |= {"dataset": answer.named[0], "problem_id": answer.named[1]}
        return item | {"hash": answer.digest} if way == "digest" else item

    def _single_body(self, answer: Answer, number: int, way: str) -> dict[str, Any]:
        return {**self._item(answer, number, way), "deadline": DEADLINE}

    def _batch_body(
        self, draw: Random, most: int
    ) -> tuple[list[tuple[Answer, int]], dict[str, Any], Callable[[Figures], float]]:
        asked = [self._drawn(draw) for _ in range(draw.randint(1, most))]
        items = [self._item(*one, _way(draw)) for one in asked]
        rule, score_of = draw.choice(_RULES)
        return asked, {"items": items, "score": rule, "deadline": DEADLINE}, score_of

    async def _post(self, path: str, body: object) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with self._attempt(path) as done:
            url = self._proxy.url + path
            async with self._client.post(url, data=data, headers=headers) as response:
                read = Response(response.status, response.headers, await response.read())
                done(read.code)
                return read

    async def _connected(self, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and send the head of a request to ``/v1/score``."""
        address = urlsplit(self._proxy.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = (
            f"POST /v1/score HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        writer.write(head.encode())
        return reader, writer

    @contextmanager
    def _attempt(self, path: str) -> Iterator[Callable[[int], None]]:
        """Count the attempt by the code of its response, or as broken without one."""
        route, codes = path.partition("?")[0], list[int]()
        try:
            yield codes.append
        finally:
            if codes:
                self.tally.responses[route, codes[0]] += 1
            else:
                self.tally.broken[route] += 1

    # Answers

    def _judged(self, response: Response) -> Any:
        """The body of a response that is no error; one to be retried is told by an error."""
        body = response.json()
        if response.code == 200:
            return body
        text = body.get("error") if isinstance(body, dict) else None
        if response.code not in _RETRYABLE or not isinstance(text, str) or not text:
            raise WrongError(f"{response.code}: {response.body[:300]!r}")
        wait = response.headers.get("Retry-After", "")
        if not wait.isdigit() and response.code != 504:
            raise WrongError(f"{response.code} without Retry-After: {text[:200]}")
        raise RetryableError(f"{response.code}: {_reason(text)}", float(wait or 1))

    def _check_results(
        self,
        asked: Sequence[tuple[Answer, int]],
        results: Sequence[Mapping[str, Any]],
        score_of: Callable[[Figures], float],
    ) -> None:
        for (answer, number), result in zip(asked, results, strict=True):
            if result["judged"]:
                self._check_result(answer, result, score_of)
            elif not result.get("reason") or not result.get("retry_after") or result["score"]:
                raise WrongError(f"unjudged, and does not say what to do: {result}")
            if result["id"] != number:
                raise WrongError(f"{answer.name}: another id")
        for result in results:
            if not result["judged"]:
                reason = f"an item: {_reason(result['reason'])}"
                raise RetryableError(reason, float(result["retry_after"]))

    def _check_result(
        self,
        answer: Answer,
        result: Mapping[str, Any],
        score_of: Callable[[Figures], float] = lambda figures: figures.pass_ratio,
    ) -> None:
        self.tally.scored += 1
        self.tally.cached += result["cached"]
        figures, expected = Figures.of(result), self.expected[answer.name]
        right = figures == expected
        if answer.allowed:
            right, expected = figures.status in answer.allowed, figures
        if not right or result["score"] != score_of(expected):
            self._found(
                "rewards are those of an undisturbed service",
                f"{answer.name}: {result}, not {self.expected[answer.name]}",
            )

    def _check_score(self, answer: Answer, score: float) -> None:
        self.tally.scored += 1
        if score != self.expected[answer.name].pass_ratio and len(answer.allowed) < 2:
            self._found(
                "rewards are those of an undisturbed service",
                f"{answer.name}: {score}, not {self.expected[answer.name]}",
            )


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """What must be the same whenever a program runs."""

    status: str
    stdout: str
    exit_code: int | None

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "ProgramFigures":
        return cls(result["status"], result["stdout"], result["exit_code"])


def _program_body(name: str) -> dict[str, Any]:
    return {"timeout": 2.0, "deadline": DEADLINE, **_PROGRAMS[name]}


def _way(draw: Random) -> str:
    return draw.choice(["id", "digest", "label"])


def _reason(text: str) -> str:
    """A reason without what differs from one time to the next."""
    return re.sub(r"[0-9]+(?:\.[0-9]+)?", "N", text)[:80]


_RULES: list[tuple[object, Callable[[Figures], float]]] = [
    ("pass_ratio", lambda figures: figures.pass_ratio),
    ("accepted", lambda figures: float(figures.accepted)),
    ({"rule": "threshold", "at": 0.5}, lambda figures: float(figures.pass_ratio >= 0.5)),
]
_PROGRAMS: dict[str, dict[str, Any]] = {
    "sum": {"code": "print(sum(map(int, input().split())))", "stdin": "3 4\n"},
    "exit code": {"code": "print('before')\nraise SystemExit(3)"},
    "error": {"code": "1 / 0"},
    "sleeps": {"code": "import time\ntime.sleep(100)", "timeout": 0.5},
    "much output": {"code": "print('x' * 100_000)"},
    "no code": {"code": "def ("},
    "shell": {"code": "echo $((6 * 7))", "language": "bash"},
}
# Route, body, and the code of its refusal; items come after a right one.
_WRONG: list[tuple[str, object, int]] = [
    ("/v1/score", b"{", 422),
    ("/v1/score", b"\xff\xfe", 422),
    ("/v1/score", b"[" * 100_000, 422),
    ("/v1/score", [], 422),
    ("/v1/score", {"completion": "x"}, 422),
    ("/v1/score", {"items": []}, 422),
    ("/v1/score", {"completion": 1, "dataset": "humaneval", "problem_id": "x"}, 422),
    ("/v1/score", {"completion": "x", "dataset": "nowhere", "problem_id": "x"}, 404),
    ("/v1/score", {"completion": "x", "ground_truth": "plumbline:nowhere/x#0123456789abcdef"}, 404),
    ("/v1/score", {"completion": "x", "ground_truth": '{"inputs": ["1"], "outputs": []}'}, 422),
    ("/v1/score", {"completion": "x" * (2**20 + 1), "dataset": "a", "problem_id": "x"}, 413),
    ("/v1/score", {"items": [{"completion": "x", "dataset": "no", "problem_id": "x"}]}, 404),
    ("/v1/score", {"completion": "x", "ground_truth": "{}", "deadline": 1e9}, 422),
    ("/v1/run", {}, 422),
    ("/v1/run", {"code": "1", "language": "cobol"}, 422),
    ("/v1/run", {"code": "x" * (256 * 1024 + 1)}, 413),
    ("/v1/info", {}, 405),
    ("/nowhere", {}, 404),
]
_KINDS: dict[str, tuple[float, Callable[[Traffic, Random], Awaitable[None]]]] = {
    "one completion": (20, Traffic._single),
    "batch": (5, Traffic._batch),
    "stream": (5, Traffic._stream),
    "repeated": (8, Traffic._repeated),
    "program": (8, Traffic._program),
    "facts": (3, Traffic._facts),
    "wrong": (8, Traffic._wrong),
    "slow client": (2, Traffic._slow),
    "slow reader": (2, Traffic._slow_reader),
    "left": (6, Traffic._left),
    "stalled": (1, Traffic._stalled),
}
