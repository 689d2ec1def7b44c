"""HTTP client for sandboxes: retries with backoff within a budget, one permit per attempt.

Times are seconds.
"""

import asyncio
import copy
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, Self, TypeVar

import aiohttp
from pydantic import ValidationError

from services.judge.permits import Permit, SandboxPool
from services.judge.requests import Attempts, run_with_harness
from shared.address import Address
from shared.canaries import PROGRAM, SandboxEnvironment
from shared.config import Config
from shared.function_plan import IMPORT_SECONDS, failed_imports, import_program
from shared.harness.sandbox_api import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    SubmitRequest,
)
from shared.harness.wire import (
    CALL_RESULT,
    RUN_CASES_VERSION,
    CallResult,
    CaseLimits,
    RunCasesRequest,
)
from shared.ledger.pipelined import PipelinedRedis
from shared.outages import Outage
from shared.redaction import redact
from shared.schemas import InfraFailure
from shared.service.bodies import AnswerTooLargeError, read_answer
from shared.service.logs import get_logger
from shared.service.settings import SandboxClientSettings
from shared.statuses import FailureKind

log = get_logger(__name__)

# Calls of a sandbox that tells how many programs it runs at once: so many run or wait in it.
_CALLS_PER_SLOT = 2
# Longest retries of calls to one sandbox of a pool, in seconds.
_PINNED_BUDGET = 30.0
_OF_QUESTIONS = CaseLimits(
    cpu=IMPORT_SECONDS,
    wall=IMPORT_SECONDS,
    compile=IMPORT_SECONDS,
    budget=IMPORT_SECONDS,
    memory=0,
    output=1 << 20,
)
# Seconds without an answer to a call until the sandboxes are asked for a sign of life.
_SILENCE = 15.0
_MOST_SHOWN = 200
# Seconds until a sandbox that did not respond is asked again what it offers.
_ASK_AGAIN = 30.0
# Statuses of a sandbox, or of a proxy before it, that is full or unavailable.
_OUTAGES = (429, 502, 503)
_LONGEST_DELAY = 5.0  # of a retry, before jitter
_LONGEST_PAUSE = 30.0  # of a ``Retry-After``
# Failures that take so long that two of them are enough, and that the program may cause.
_SLOW, _MOST_SLOW = (FailureKind.READ_TIMEOUT, "http_504"), 2

# Bytes of an answer, and of all that are read at once. The largest honest ones are of a submit,
# and of a call with the largest ``judge.max_output_mb``.
_MAX_ANSWER = 256 * 2**20

Response = TypeVar("Response")


# Errors


class SandboxUnavailableError(Exception):
    """No usable response within the retry budget; ``failures`` has one entry per failed attempt.

    Every call of a sandbox may raise it.
    """

    def __init__(self, failures: Sequence[InfraFailure]) -> None:
        super().__init__(str(failures[-1]))
        self.failures = tuple(failures)

    @property
    def after_time(self) -> bool:
        """Whether the last call ended by time: the client's or that of a proxy."""
        return self.failures[-1].kind in _SLOW


@dataclass(eq=False)
class _AttemptFailedError(Exception):
    """A failed attempt.

    Attributes:
        busy: Whether the sandbox was full or unavailable; the request is not the cause.
        pause: Seconds for which the sandbox gets no further request; None for no pause.
        final: Whether the sandbox rejects the request, so that a retry is useless.
    """

    failure: InfraFailure
    busy: bool = False
    pause: float | None = None
    final: bool = False

    def __str__(self) -> str:
        return str(self.failure)


# The client


class Pool(Protocol):
    """Source of permits: ``services.judge.permits.SandboxPool``."""

    @property
    def urls(self) -> Sequence[str]: ...

    def limit(self, url: str, calls: int) -> None: ...

    def permit(
        self, *, exclusive: bool = False, avoid: str | None = None, only: str | None = None
    ) -> AbstractAsyncContextManager[Permit]: ...


@dataclass(frozen=True, slots=True)
class RetryTimings:
    """Timings of calls and retries.

    Attributes:
        first_delay: Delay before the first retry; each further one is twice as long.
        queueing: Time that a call may wait in a busy sandbox, in addition to its own limits.
        connect: Time to establish a connection.
    """

    first_delay: float = 0.2
    queueing: float = 60.0
    connect: float = 10.0


class SandboxClient:
    """Calls the sandboxes of a pool over kept-alive connections."""

    def __init__(
        self,
        pool: Pool,
        *,
        max_attempts: int,
        retry_budget: float,
        timings: RetryTimings | None = None,
        headers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """``headers`` are those of all requests, by the pool's URLs."""
        self.pool: Pool = pool
        self._only: str | None = None
        self._headers = headers or {}
        self._max_attempts = max_attempts
        self._retry_budget = retry_budget
        self._timings = timings or RetryTimings()
        self._outage = Outage(retry_budget)
        self._native, self._ask_at = False, 0.0
        self._imports: dict[str, str | None] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timings.connect),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        if isinstance(self.pool, SandboxPool):
            await self.pool.close()

    def pinned(self, url: str) -> Self:
        """Return a client that calls only this sandbox of the pool, over the same connections."""
        client = copy.copy(self)
        client._only = url
        # Others may be well, and nothing should wait long for this one.
        client._retry_budget = min(self._retry_budget, _PINNED_BUDGET)
        return client

    async def trouble(self) -> str | None:
        """What the sandboxes do, if none of them answers; None if one does."""
        if self._outage.silent_for >= _SILENCE:
            answers = await asyncio.gather(*map(self._offers, self.pool.urls))
            if any(offers is not None for offers in answers):
                self._outage.spoke()
            else:
                self._outage.failed("no answer to HEAD /run_cases", silent=True)
        if self._outage.since is None:
            return None
        names = ", ".join(self.pool.urls)
        return f"{names}: {self._outage.reason[:_MOST_SHOWN]}"

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        """Run a program; failed attempts are counted, and retried with jittered backoff.

        With ``alone`` a call waits until nothing else runs in the sandbox.
        """
        longest = request.compile_timeout + request.run_timeout
        parse = RunCodeResponse.model_validate_json
        return await self._call("/run_code", request.body, longest, parse, attempts, alone)

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        """Run a program on many inputs in one call.

        Sandboxes of this project have an endpoint for it; for others the harness travels along.
        """
        if await self._all_offer_cases():
            body, longest = request.model_dump_json().encode(), request.limits.call
            parse = CALL_RESULT.validate_json
            try:
                return await self._call("/run_cases", body, longest, parse, attempts, alone)
            except SandboxUnavailableError as error:
                if error.failures[-1].kind != "http_404":
                    raise
                self._ask_at = 0.0  # the sandbox was replaced by another one
        return await run_with_harness(self, request, attempts, alone=alone)

    async def failed_imports(
        self, statements: Sequence[str], attempts: Attempts
    ) -> Mapping[str, str]:
        """Return why imports fail in the sandbox, by statement; each is tried once."""
        if new := [text for text in statements if text not in self._imports]:
            program = import_program(new)
            request = RunCasesRequest(code=program, inputs=[""], limits=_OF_QUESTIONS)
            result = await self.run_cases(request, attempts)
            failed = failed_imports(result.cases[0].stdout) if result.cases else None
            if failed is None:
                raise SandboxUnavailableError([InfraFailure(kind=FailureKind.HARNESS)])
            self._imports |= {text: failed.get(text) for text in new}
        reasons = {text: self._imports[text] for text in statements}
        return {text: reason for text, reason in reasons.items() if reason is not None}

    async def environment(self) -> SandboxEnvironment | None:
        """Ask a sandbox what its programs run on; None if it does not tell."""
        request = RunCasesRequest(code=PROGRAM, inputs=[""], limits=_OF_QUESTIONS)
        try:
            result = await self.run_cases(request, Attempts())
        except SandboxUnavailableError:
            return None
        kind = "plumbline" if await self._all_offer_cases() else "SandboxFusion"
        stdout = result.cases[0].stdout if result.cases else b""
        return SandboxEnvironment.read(kind, stdout)

    async def _all_offer_cases(self) -> bool:
        """Whether all sandboxes that responded offer ``/run_cases``, and at least one did."""
        now = time.monotonic()
        if self._ask_at <= now:
            answers = await asyncio.gather(*map(self._offers, self.pool.urls))
            self._native = any(answers) and False not in answers
            self._ask_at = now + _ASK_AGAIN if None in answers else math.inf
        return self._native

    async def _offers(self, url: str) -> bool | None:
        """Return whether a sandbox offers ``/run_cases``; None if it does not respond."""
        try:
            async with asyncio.timeout(self._timings.connect):
                async with self._session.head(
                    f"{url}/run_cases", headers=self._headers.get(url)
                ) as response:
                    if response.status in _OUTAGES or response.status >= 500:
                        return None
                    slots = response.headers.get("Plumbline-Concurrency", "")
                    if slots.isdecimal():
                        self.pool.limit(url, _CALLS_PER_SLOT * int(slots))
                    return response.headers.get("Plumbline-Run-Cases") == RUN_CASES_VERSION
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def submit(
        self, request: SubmitRequest, longest: float, attempts: Attempts, *, alone: bool = False
    ) -> EvalResult:
        """Judge a completion by the data-set API, in at most ``longest`` seconds of execution."""
        parse = EvalResult.model_validate_json
        return await self._call("/submit", request.body, longest, parse, attempts, alone)

    async def _call(
        self,
        path: str,
        body: bytes,
        longest: float,
        parse: Callable[[bytes], Response],
        attempts: Attempts,
        alone: bool,
    ) -> Response:
        # The budget starts at the first failure: before that the call only waited for a permit.
        give_up_at: float | None = None
        failures: list[InfraFailure] = []
        broken = slow = 0
        avoid: str | None = None
        while True:
            async with self.pool.permit(exclusive=alone, avoid=avoid, only=self._only) as permit:
                attempts.requests += 1
                try:
                    with self._outage.request():
                        return _parsed(await self._post(permit.url, path, body, longest), parse)
                except _AttemptFailedError as error:
                    failed = error
                    permit.paused = error.pause
            failures.append(failed.failure)
            if failed.final:
                log.error("sandbox rejects the request", reason=str(failed))
                raise SandboxUnavailableError(failures)
            if failed.busy:
                self._outage.failed(str(failed))
            avoid = permit.url
            attempts.failures.append(failed.failure)
            broken += not failed.busy
            slow += failed.failure.kind in _SLOW
            give_up_at = give_up_at or time.monotonic() + self._retry_budget
            backoff = min(_LONGEST_DELAY, self._timings.first_delay * 2 ** (len(failures) - 1))
            # Jitter must not shorten the time that the sandbox asks for.
            delay = (failed.pause or 0.0) + random.uniform(0.5, 1.5) * backoff
            out_of_time = slow >= _MOST_SLOW or time.monotonic() + delay > give_up_at
            if broken >= self._max_attempts or out_of_time:
                raise SandboxUnavailableError(failures)
            log.warning("sandbox call failed, trying again", reason=str(failed), delay=delay)
            await asyncio.sleep(delay)

    async def _post(self, url: str, path: str, body: bytes, longest: float) -> bytes:
        deadline = longest + self._timings.queueing
        headers = {"Content-Type": "application/json", **self._headers.get(url, {})}
        try:
            async with (
                asyncio.timeout(deadline),
                self._session.post(
                    f"{url}{path}", data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                answer = await read_answer(response, _MAX_ANSWER)
        except AnswerTooLargeError as error:
            raise _AttemptFailedError(_unusable(str(error))) from None
        except aiohttp.ClientError as error:  # before TimeoutError: some of aiohttp's are both
            failure = InfraFailure(kind=type(error).__name__, text=str(error))
            raise _AttemptFailedError(failure, busy=True, pause=0.0) from None
        except TimeoutError:
            failure = InfraFailure(kind=FailureKind.READ_TIMEOUT, text=f"{deadline:.0f} s")
            raise _AttemptFailedError(failure, pause=0.0) from None
        _check_status(response.status, response.headers.get("Retry-After"), answer)
        return answer


def _parsed(body: bytes, parse: Callable[[bytes], Response]) -> Response:
    try:
        answer = parse(body)
    except ValidationError:
        raise _AttemptFailedError(_unusable(_excerpt(body))) from None
    if isinstance(answer, RunCodeResponse) and answer.status is RunStatus.SANDBOX_ERROR:
        text = redact(answer.message[-1000:])[-200:]
        raise _AttemptFailedError(InfraFailure(kind=FailureKind.SANDBOX_ERROR, text=text))
    return answer


def open_client(
    config: Config, settings: SandboxClientSettings, commands: PipelinedRedis, holder: str
) -> SandboxClient:
    """Return a client of the config's sandboxes, or of the settings', which replace them.

    All clients share the permits. ``holder`` names the process.
    """
    addresses = [Address.parse(url) for url in settings.sandboxes or config.sandbox_urls]
    # Keys, metrics and records name a sandbox without its password.
    names, most = [address.url for address in addresses], config.sandbox.max_concurrency
    # A run's own address may be anybody's who can write to Redis.
    token = settings.sandbox_headers if settings.sandboxes else {}
    return SandboxClient(
        SandboxPool(commands, names, holder, max_concurrency=most),
        max_attempts=config.judge.max_attempts,
        retry_budget=config.judge.retry_budget,
        headers={address.url: {**token, **address.headers} for address in addresses},
    )


def _unusable(text: str) -> InfraFailure:
    return InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=text)


def _excerpt(body: bytes) -> str:
    # Redacted before it is cut, because half of a secret is not recognized.
    return redact(body[:1000].decode("utf-8", "replace"))[:200]


def _check_status(status: int, retry_after: str | None, body: bytes) -> None:
    """Raise an ``_AttemptFailedError`` unless the status is 200."""
    if status == HTTPStatus.OK:
        return
    failure = InfraFailure(kind=f"http_{status}", text=_excerpt(body) or None)
    if status in (*_OUTAGES, HTTPStatus.GATEWAY_TIMEOUT):
        busy = status in _OUTAGES
        raise _AttemptFailedError(failure, busy=busy, pause=_seconds(retry_after))
    raise _AttemptFailedError(failure, final=status < 500)


def _seconds(header: str | None) -> float:
    """Return the seconds of a ``Retry-After`` header; 0 for a date."""
    try:
        # In this order "nan" becomes 0.
        return max(0.0, min(float(header), _LONGEST_PAUSE)) if header else 0.0
    except ValueError:
        return 0.0
