"""The client of SandboxFusion: a permit per call, errors by class, retries within a budget."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from services.judge.sandbox.api import RunCode, RunCodeResponse, Submit, SubmitResponse, Usage
from shared.ledger import Outcome, Permit
from shared.service.logs import get_logger

log = get_logger(__name__)

_FIRST_DELAY = 0.2
_MAX_DELAY = 5.0
_MAX_RETRY_AFTER = 30.0
# A sandbox is overloaded where programs wait for this long and this share of their time before
# they start, or get no more than this share of a core.
_WAITED, _WAITED_SHARE = 0.5, 0.5
_CPU_SHARE, _CPU_MEASURABLE = 0.25, 0.5

Answer = TypeVar("Answer", bound=BaseModel)


class Pool(Protocol):
    """Where permits come from: ``shared.ledger.SandboxPool``."""

    def permit(
        self, *, exclusive: bool = False, avoid: str | None = None
    ) -> AbstractAsyncContextManager[Permit]: ...


class SandboxUnavailableError(Exception):
    """No usable answer within the budget; ``reasons`` has one line per failed attempt."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(reasons[-1])
        self.reasons = tuple(reasons)


@dataclass
class Attempts:
    """What the calls for one sample cost in requests, and what failed in them."""

    requests: int = 0
    failures: list[str] = field(default_factory=list)


class _AttemptFailedError(Exception):
    """``busy``: the sandbox was full or away, which says nothing about the request."""

    def __init__(
        self,
        reason: str,
        outcome: Outcome | None,
        *,
        busy: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome
        self.busy = busy
        self.retry_after = retry_after


class _RejectedError(Exception):
    """A 4xx: our request is wrong, and will be wrong the next time too."""


class SandboxClient:
    """Calls the sandboxes of a pool over kept-alive connections."""

    def __init__(self, pool: Pool, *, max_attempts: int, retry_budget: float) -> None:
        self.pool = pool
        self._max_attempts = max_attempts
        self._retry_budget = retry_budget
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
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
        """Run a program; failed attempts are made again with jittered backoff.

        Args:
            request: What to run.
            attempts: Where the attempts are counted.
            alone: Wait until the sandbox does nothing else.

        Raises:
            SandboxUnavailableError: No usable answer within the budget, or the sandbox rejects
                the request.
        """
        call = _Call("/run_code", request.body(), request.deadline, RunCodeResponse, alone)

        def outcome(response: RunCodeResponse, seconds: float) -> Outcome:
            usage = request.usage_of(response) if request.usage_of else None
            return _health(response, seconds, usage)

        return await self._repeat(call, attempts, outcome)

    async def submit(
        self, request: Submit, attempts: Attempts, *, alone: bool = False
    ) -> SubmitResponse:
        """Have a completion judged by the data-set API.

        Raises:
            SandboxUnavailableError: As ``run_code``.
        """
        call = _Call("/submit", request.body(), request.deadline, SubmitResponse, alone)
        return await self._repeat(call, attempts, lambda *_: Outcome.OK)

    async def _repeat(
        self, call: "_Call[Answer]", attempts: Attempts, outcome: Callable[[Answer, float], Outcome]
    ) -> Answer:
        # Counted from the first trouble: what came before was waiting for a fleet at work.
        give_up_at: float | None = None
        reasons: list[str] = []
        broken = 0
        avoid: str | None = None
        while True:
            async with self.pool.permit(exclusive=call.alone, avoid=avoid) as permit:
                attempts.requests += 1
                try:
                    began = time.monotonic()
                    answer = await self._attempt(permit.url, call)
                    permit.report(outcome(answer, time.monotonic() - began))
                    return answer
                except _RejectedError as error:
                    log.error("sandbox rejects our request", reason=str(error))
                    raise SandboxUnavailableError([*reasons, str(error)]) from None
                except _AttemptFailedError as error:
                    if error.outcome is not None:
                        permit.report(error.outcome, error.retry_after)
                    failure = error
            avoid = permit.url
            reasons.append(failure.reason)
            attempts.failures.append(failure.reason)
            broken += not failure.busy
            give_up_at = give_up_at or time.monotonic() + self._retry_budget
            delay = _delay(len(reasons), failure.retry_after)
            if broken >= self._max_attempts or time.monotonic() + delay > give_up_at:
                raise SandboxUnavailableError(reasons)
            log.warning("sandbox call failed, trying again", reason=failure.reason, delay=delay)
            await asyncio.sleep(delay)

    async def _attempt(self, url: str, call: "_Call[Answer]") -> Answer:
        try:
            async with asyncio.timeout(call.deadline):
                async with self._session.post(f"{url}{call.path}", json=call.body) as response:
                    body = await response.read()
        except aiohttp.ClientError as error:  # before TimeoutError: some of aiohttp's are both
            raise _AttemptFailedError(
                f"{type(error).__name__}: {error}", Outcome.BROKEN, busy=True
            ) from None
        except TimeoutError:
            raise _AttemptFailedError(
                f"read_timeout: {call.deadline:.0f} s", Outcome.BROKEN
            ) from None
        return _parse(response.status, response.headers.get("Retry-After"), body, call.answer)


@dataclass(frozen=True, slots=True)
class _Call(Generic[Answer]):
    path: str
    body: Mapping[str, Any]
    deadline: float
    answer: type[Answer]
    alone: bool


def _delay(failures: int, retry_after: float) -> float:
    backoff: float = min(_MAX_DELAY, _FIRST_DELAY * 2 ** (failures - 1))
    # What the sandbox asks for is not undercut.
    return retry_after + random.uniform(0.5, 1.5) * backoff


def _health(response: RunCodeResponse, seconds: float, usage: Usage | None) -> Outcome:
    executed = response.executed
    if seconds - executed > _WAITED + _WAITED_SHARE * executed:
        return Outcome.CONGESTED
    # Of the answers' own time: compiling takes seconds in which they use nothing.
    if usage is not None and _CPU_MEASURABLE < usage.cpu < _CPU_SHARE * usage.wall:
        return Outcome.CONGESTED
    return Outcome.OK


def _parse(status: int, retry_after: str | None, body: bytes, kind: type[Answer]) -> Answer:
    excerpt = body[:200].decode("utf-8", "replace")
    if status in (429, 502, 503, 504):
        raise _AttemptFailedError(
            f"http_{status}", Outcome.REJECTED, busy=True, retry_after=_seconds(retry_after)
        )
    if status >= 500:
        raise _AttemptFailedError(f"http_{status}: {excerpt}", None)
    if status != 200:
        raise _RejectedError(f"http_{status}: {excerpt}")
    try:
        answer = kind.model_validate_json(body)
    except ValidationError:
        raise _AttemptFailedError(f"unusable answer: {excerpt}", None) from None
    if isinstance(answer, RunCodeResponse) and answer.status == "SandboxError":
        raise _AttemptFailedError(f"SandboxError: {answer.message[-200:]}", None)
    return answer


def _seconds(header: str | None) -> float:
    try:
        # In this order "nan" comes to nothing.
        return max(0.0, min(float(header), _MAX_RETRY_AFTER)) if header else 0.0
    except ValueError:
        return 0.0
