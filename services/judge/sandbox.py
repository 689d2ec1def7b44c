"""HTTP client for sandboxes: retries with backoff within a budget, one permit per attempt.

Sandboxes of this project run many cases in one call of ``/run_cases``. For any other SandboxFusion
the harness travels in ``/run_code``. Times are seconds.
"""

import asyncio
import base64
import copy
import marshal
import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Protocol, Self, TypeVar

import aiohttp
from pydantic import ValidationError

from services.judge.permits import Permit, SandboxPool
from shared.address import Address
from shared.canaries import PROGRAM, SandboxEnvironment
from shared.config import Config
from shared.function_plan import IMPORT_SECONDS, failed_imports, import_program
from shared.harness import wire
from shared.harness.confinement import AUDIT_ARCHITECTURES, COMMON, LOCAL_SOCKETS, compile_filter
from shared.harness.sandbox_api import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    SubmitRequest,
)
from shared.harness.sources import harness_sources, module_source
from shared.harness.wire import CallResult, CaseLimits, RunCasesRequest
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

# The oldest format of marshal that all versions read.
_ANY_VERSION = 2

Response = TypeVar("Response")


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)


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

    ``busy``: the sandbox was full or unavailable, so the request is not the cause. ``pause``: the
    seconds for which it gets no further request; None for no pause. ``final``: the sandbox rejects
    the request, so that a retry is useless.
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


class SandboxClient:
    """Calls the sandboxes of a pool over kept-alive connections."""

    def __init__(
        self,
        pool: Pool,
        *,
        max_attempts: int,
        retry_budget: float,
        headers: Mapping[str, Mapping[str, str]] | None = None,
        first_delay: float = 0.2,
        queueing: float = 60.0,
        connect: float = 10.0,
    ) -> None:
        """Create a client; times are seconds.

        Args:
            pool: The sandboxes.
            max_attempts: Attempts of a call, without those in which the sandbox was busy.
            retry_budget: Time from the first failure of a call until the client gives up.
            headers: Headers of all requests, by the pool's URLs.
            first_delay: Delay before the first retry; each further one is twice as long.
            queueing: Time that a call may wait in a busy sandbox, in addition to its own limits.
            connect: Time to establish a connection.
        """
        self.pool: Pool = pool
        self._only: str | None = None
        self._headers = headers or {}
        self._max_attempts = max_attempts
        self._retry_budget = retry_budget
        self._first_delay, self._queueing, self._connect = first_delay, queueing, connect
        self._outage = Outage(retry_budget)
        self._native, self._ask_at = False, 0.0
        self._imports: dict[str, str | None] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
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
            parse = wire.CALL_RESULT.validate_json
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
            failed = failed_imports(await self._output_of(import_program(new), attempts))
            if failed is None:
                raise SandboxUnavailableError([InfraFailure(kind=FailureKind.HARNESS)])
            self._imports |= {text: failed.get(text) for text in new}
        return {text: reason for text in statements if (reason := self._imports[text]) is not None}

    async def environment(self) -> SandboxEnvironment | None:
        """Ask a sandbox what its programs run on; None if it does not report it."""
        try:
            stdout = await self._output_of(PROGRAM, Attempts())
        except SandboxUnavailableError:
            return None
        kind = "plumbline" if await self._all_offer_cases() else "SandboxFusion"
        return SandboxEnvironment.read(kind, stdout)

    async def _output_of(self, program: str, attempts: Attempts) -> bytes:
        request = RunCasesRequest(code=program, inputs=[""], limits=_OF_QUESTIONS)
        result = await self.run_cases(request, attempts)
        return result.cases[0].stdout if result.cases else b""

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
            async with asyncio.timeout(self._connect):
                async with self._session.head(
                    f"{url}/run_cases", headers=self._headers.get(url)
                ) as response:
                    if response.status in _OUTAGES or response.status >= 500:
                        return None
                    slots = response.headers.get("Plumbline-Concurrency", "")
                    if slots.isdecimal():
                        self.pool.limit(url, _CALLS_PER_SLOT * int(slots))
                    return response.headers.get("Plumbline-Run-Cases") == wire.RUN_CASES_VERSION
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
                        return await self._attempt(permit.url, path, body, longest, parse)
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
            backoff = min(_LONGEST_DELAY, self._first_delay * 2 ** (len(failures) - 1))
            # Jitter must not shorten the time that the sandbox asks for.
            delay = (failed.pause or 0.0) + random.uniform(0.5, 1.5) * backoff
            out_of_time = slow >= _MOST_SLOW or time.monotonic() + delay > give_up_at
            if broken >= self._max_attempts or out_of_time:
                raise SandboxUnavailableError(failures)
            log.warning("sandbox call failed, trying again", reason=str(failed), delay=delay)
            await asyncio.sleep(delay)

    async def _attempt(
        self, url: str, path: str, body: bytes, longest: float, parse: Callable[[bytes], Response]
    ) -> Response:
        deadline = longest + self._queueing
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
            raise _unusable(str(error)) from None
        except aiohttp.ClientError as error:  # before TimeoutError: some of aiohttp's are both
            failure = InfraFailure(kind=type(error).__name__, text=str(error))
            raise _AttemptFailedError(failure, busy=True, pause=0.0) from None
        except TimeoutError:
            failure = InfraFailure(kind=FailureKind.READ_TIMEOUT, text=f"{deadline:.0f} s")
            raise _AttemptFailedError(failure, pause=0.0) from None
        if response.status != HTTPStatus.OK:
            raise _refused(response.status, response.headers.get("Retry-After"), answer)
        try:
            parsed = parse(answer)
        except ValidationError:
            raise _unusable(_excerpt(answer)) from None
        if isinstance(parsed, RunCodeResponse) and parsed.status is RunStatus.SANDBOX_ERROR:
            text = redact(parsed.message[-1000:])[-200:]
            raise _AttemptFailedError(InfraFailure(kind=FailureKind.SANDBOX_ERROR, text=text))
        return parsed


def _unusable(text: str) -> _AttemptFailedError:
    return _AttemptFailedError(InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=text))


def _refused(status: int, retry_after: str | None, body: bytes) -> _AttemptFailedError:
    failure = InfraFailure(kind=f"http_{status}", text=_excerpt(body) or None)
    if status not in (*_OUTAGES, HTTPStatus.GATEWAY_TIMEOUT):
        return _AttemptFailedError(failure, final=status < 500)
    try:
        # In this order "nan" becomes 0.
        pause = max(0.0, min(float(retry_after or 0), _LONGEST_PAUSE))
    except ValueError:
        pause = 0.0  # a date
    return _AttemptFailedError(failure, busy=status in _OUTAGES, pause=pause)


def _excerpt(body: bytes) -> str:
    # Redacted before it is cut, because half of a secret is not recognized.
    return redact(body[:1000].decode("utf-8", "replace"))[:200]


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


# The harness in a ``/run_code``


async def run_with_harness(
    sandbox: SandboxClient, request: RunCasesRequest, attempts: Attempts, *, alone: bool
) -> CallResult:
    """Run a program on all inputs."""
    key = secrets.token_bytes(32)
    functions = request.language == wire.FUNCTIONS
    call = base64.b64encode(wire.encode_call(request)).decode()
    response = await sandbox.run_code(
        RunCodeRequest(
            code=source("boot"),
            language="python",
            stdin="\n".join((key.hex(), "".join(request.inputs))),
            run_timeout=request.limits.call,
            # The harness limits each case; it has no limit itself.
            files={**harness_files(functions=functions), wire.CALL: call},
            fetch_files=[wire.RESULTS],
        ),
        attempts,
        alone=alone,
    )
    result = wire.decode_results(wire.verified(response.file(wire.RESULTS), key))
    if result.end is None:
        run = response.run_result
        log.info(
            "harness did not finish",
            cases=len(result.cases),
            of=len(request.inputs),
            return_code=run.return_code if run else None,
            stderr=(run.stderr or "")[-500:] if run else None,
        )
    return result


def source(name: str) -> str:
    """Return the source text of a module that runs in the sandbox."""
    return module_source("services.judge.harness", name)


@cache
def harness_files(*, functions: bool = False) -> dict[str, str]:
    """Return the files of the harness, which ``boot.py`` loads, in base64.

    They are its modules' sources, and a filter of system calls for each kind of machine.

    Args:
        functions: Whether the call is one of function tests.
    """
    parts = {"harness": marshal.dumps(harness_sources(functions=functions), _ANY_VERSION)}
    for machine in AUDIT_ARCHITECTURES:
        parts[f"filter-{machine}"] = compile_filter(COMMON, LOCAL_SOCKETS, machine=machine)
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
