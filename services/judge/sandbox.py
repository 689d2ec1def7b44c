"""HTTP client for SandboxFusion: retries with backoff within a budget, one permit per attempt.

Times are seconds.
"""

import asyncio
import base64
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from services.judge.permits import CallOutcome, Permit
from shared.schemas import InfraFailure
from shared.service.logs import get_logger
from shared.statuses import FailureKind

log = get_logger(__name__)

# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_SUBMIT_CONCURRENCY = 3
# Signs of an overloaded sandbox: programs wait longer than this many seconds plus this share of
# their execution time, or get less than this share of a core.
_WAITED, _WAITED_SHARE = 0.5, 0.5
_CPU_SHARE, _CPU_MEASURABLE = 0.25, 0.5

Response = TypeVar("Response", bound=BaseModel)


# Requests and responses


class CommandResult(BaseModel):
    """Result of one command: compile or run."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    files: dict[str, str] = {}

    @property
    def executed(self) -> float:
        """Execution time of compiling and running together, in seconds."""
        commands = (self.compile_result, self.run_result)
        return sum(c.execution_time or 0.0 for c in commands if c)

    def file(self, name: str) -> bytes:
        """Return a fetched file; empty if it is missing."""
        try:
            return base64.b64decode(self.files.get(name, ""))
        except ValueError:
            return b""


class SubmittedTest(BaseModel):
    passed: bool
    exec_info: RunCodeResponse


class SubmitResponse(BaseModel):
    accepted: bool
    extracted_code: str | None = None
    tests: list[SubmittedTest] = []


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """CPU and wall-clock time of all programs of a call together."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class RunCode:
    """Request to run a program; memory in MiB.

    ``usage_of`` extracts the resource usage of the programs from the response.
    """

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()
    usage_of: Callable[[RunCodeResponse], SandboxUsage] | None = None

    def body(self) -> Mapping[str, object]:
        return {
            "code": self.code,
            "language": self.language,
            "stdin": self.stdin,
            "compile_timeout": self.compile_timeout,
            "run_timeout": self.run_timeout,
            "memory_limit_MB": self.memory_limit_mb,
            "files": self.files,
            "fetch_files": self.fetch_files,
        }

    @property
    def longest(self) -> float:
        """Longest execution time by the request's own limits."""
        return self.compile_timeout + self.run_timeout


@dataclass(frozen=True, slots=True)
class Submit:
    """Request to the data-set API; ``timeout`` applies to compiling and to running each case."""

    dataset: str
    completion: str
    config: Mapping[str, Any]
    cases: int
    timeout: float

    def body(self) -> Mapping[str, object]:
        return {
            "dataset": self.dataset,
            "id": 0,
            "completion": self.completion,
            "config": self.config,
        }

    @property
    def longest(self) -> float:
        """Longest execution time of all cases by their own limits."""
        rounds = -(-self.cases // _SUBMIT_CONCURRENCY)
        return 2 * self.timeout * rounds


# Errors


class SandboxUnavailableError(Exception):
    """No usable response within the retry budget; ``failures`` has one entry per failed attempt."""

    def __init__(self, failures: Sequence[InfraFailure]) -> None:
        super().__init__(str(failures[-1]))
        self.failures = tuple(failures)


class _AttemptFailedError(Exception):
    """A failed attempt that may be retried.

    ``busy``: the sandbox was full or unavailable; the request is not the cause.
    """

    def __init__(
        self,
        failure: InfraFailure,
        outcome: CallOutcome | None,
        *,
        busy: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.outcome = outcome
        self.busy = busy
        self.retry_after = retry_after


class _RejectedError(Exception):
    """A 4xx response: the request is invalid, so a retry is useless."""

    def __init__(self, failure: InfraFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


# The client


class Pool(Protocol):
    """Source of permits: ``services.judge.permits.SandboxPool``."""

    def permit(
        self, *, exclusive: bool = False, avoid: str | None = None
    ) -> AbstractAsyncContextManager[Permit]: ...


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RetryTimings:
    """Timings of calls and retries.

    Attributes:
        first_delay: Delay before the first retry; each further one is twice as long.
        max_delay: Longest delay before jitter.
        jitter: Bounds of the random factor of a delay.
        max_retry_after: Longest ``Retry-After`` that is honoured.
        queueing: Time that a call may wait in a busy sandbox, in addition to its own limits.
        connect: Time to establish a connection.
    """

    first_delay: float = 0.2
    max_delay: float = 5.0
    jitter: tuple[float, float] = (0.5, 1.5)
    max_retry_after: float = 30.0
    queueing: float = 60.0
    connect: float = 10.0

    def delay(self, failures: int, retry_after: float) -> float:
        backoff: float = min(self.max_delay, self.first_delay * 2 ** (failures - 1))
        # Jitter must not shorten the time that the sandbox asks for.
        return retry_after + random.uniform(*self.jitter) * backoff


class SandboxClient:
    """Calls the sandboxes of a pool over kept-alive connections."""

    def __init__(
        self,
        pool: Pool,
        *,
        max_attempts: int,
        retry_budget: float,
        timings: RetryTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self._max_attempts = max_attempts
        self._retry_budget = retry_budget
        self._timings = timings or RetryTimings()
        self._clock = clock
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timings.connect),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def run_code(
        self, request: RunCode, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        """Run a program; failed attempts are retried with jittered backoff.

        Args:
            request: Program, input and limits.
            attempts: Counts the attempts.
            alone: Wait until nothing else runs in the sandbox.

        Raises:
            SandboxUnavailableError: No usable response within the budget, or the sandbox rejects
                the request.
        """
        call = _Call("/run_code", request.body(), request.longest, RunCodeResponse, alone)

        def outcome(response: RunCodeResponse, seconds: float) -> CallOutcome:
            usage = request.usage_of(response) if request.usage_of else None
            return _health(response, seconds, usage)

        return await self._call_with_retries(call, attempts, outcome)

    async def submit(
        self, request: Submit, attempts: Attempts, *, alone: bool = False
    ) -> SubmitResponse:
        """Judge a completion by the data-set API.

        Raises:
            SandboxUnavailableError: As ``run_code``.
        """
        call = _Call("/submit", request.body(), request.longest, SubmitResponse, alone)
        return await self._call_with_retries(call, attempts, lambda *_: CallOutcome.OK)

    async def _call_with_retries(
        self,
        call: "_Call[Response]",
        attempts: Attempts,
        outcome: Callable[[Response, float], CallOutcome],
    ) -> Response:
        # The budget starts at the first failure: before that the call only waited for a permit.
        give_up_at: float | None = None
        failures: list[InfraFailure] = []
        broken = 0
        avoid: str | None = None
        while True:
            async with self.pool.permit(exclusive=call.alone, avoid=avoid) as permit:
                attempts.requests += 1
                try:
                    began = self._clock()
                    answer = await self._attempt(permit.url, call)
                    permit.report(outcome(answer, self._clock() - began))
                    return answer
                except _RejectedError as error:
                    log.error("sandbox rejects the request", reason=str(error))
                    raise SandboxUnavailableError([*failures, error.failure]) from None
                except _AttemptFailedError as error:
                    if error.outcome is not None:
                        permit.report(error.outcome, error.retry_after)
                    failed = error
            avoid = permit.url
            failures.append(failed.failure)
            attempts.failures.append(failed.failure)
            broken += not failed.busy
            give_up_at = give_up_at or self._clock() + self._retry_budget
            delay = self._timings.delay(len(failures), failed.retry_after)
            if broken >= self._max_attempts or self._clock() + delay > give_up_at:
                raise SandboxUnavailableError(failures)
            log.warning("sandbox call failed, trying again", reason=str(failed), delay=delay)
            await asyncio.sleep(delay)

    async def _attempt(self, url: str, call: "_Call[Response]") -> Response:
        deadline = call.longest + self._timings.queueing
        try:
            async with asyncio.timeout(deadline):
                async with self._session.post(f"{url}{call.path}", json=call.body) as response:
                    body = await response.read()
        except aiohttp.ClientError as error:  # before TimeoutError: some of aiohttp's are both
            failure = InfraFailure(kind=type(error).__name__, text=str(error))
            raise _AttemptFailedError(failure, CallOutcome.BROKEN, busy=True) from None
        except TimeoutError:
            failure = InfraFailure(kind=FailureKind.READ_TIMEOUT, text=f"{deadline:.0f} s")
            raise _AttemptFailedError(failure, CallOutcome.BROKEN) from None
        retry_after = _seconds(response.headers.get("Retry-After"), self._timings.max_retry_after)
        return _parse(response.status, retry_after, body, call.answer)


@dataclass(frozen=True, slots=True)
class _Call(Generic[Response]):
    path: str
    body: Mapping[str, object]
    longest: float
    answer: type[Response]
    alone: bool


def _health(response: RunCodeResponse, seconds: float, usage: SandboxUsage | None) -> CallOutcome:
    executed = response.executed
    if seconds - executed > _WAITED + _WAITED_SHARE * executed:
        return CallOutcome.CONGESTED
    # Relative to the programs' own time: they use no CPU while the compiler runs.
    if usage is not None and _CPU_MEASURABLE < usage.cpu < _CPU_SHARE * usage.wall:
        return CallOutcome.CONGESTED
    return CallOutcome.OK


def _parse(status: int, retry_after: float, body: bytes, kind: type[Response]) -> Response:
    excerpt = body[:200].decode("utf-8", "replace")
    if status in (429, 502, 503, 504):
        failure = InfraFailure(kind=f"http_{status}")
        raise _AttemptFailedError(failure, CallOutcome.REJECTED, busy=True, retry_after=retry_after)
    if status != 200:
        failure = InfraFailure(kind=f"http_{status}", text=excerpt)
        raise _AttemptFailedError(failure, None) if status >= 500 else _RejectedError(failure)
    try:
        answer = kind.model_validate_json(body)
    except ValidationError:
        failure = InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=excerpt)
        raise _AttemptFailedError(failure, None) from None
    if isinstance(answer, RunCodeResponse) and answer.status == "SandboxError":
        failure = InfraFailure(kind=FailureKind.SANDBOX_ERROR, text=answer.message[-200:])
        raise _AttemptFailedError(failure, None)
    return answer


def _seconds(header: str | None, most: float) -> float:
    try:
        # In this order "nan" becomes 0.
        return max(0.0, min(float(header), most)) if header else 0.0
    except ValueError:
        return 0.0
