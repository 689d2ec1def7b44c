"""The client of SandboxFusion's ``/run_code``: errors by class, retries within a budget."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
from pydantic import BaseModel, ValidationError

from shared.logs import get_logger

log = get_logger(__name__)

# Seconds that a call may take beyond its own limits: the queue of a busy sandbox is no error.
_SLACK = 90.0
_FIRST_DELAY = 0.2
_MAX_DELAY = 5.0
# Seconds for which a sandbox that broke a connection is asked only if there is no other.
_AVOIDED = 5.0


class CommandResult(BaseModel):
    """One command, compile or run, as SandboxFusion reports it. Times are seconds."""

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


@dataclass(frozen=True, slots=True)
class RunCode:
    """A request to run a program. Limits are seconds and MiB."""

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int

    def body(self) -> Mapping[str, Any]:
        return {
            "code": self.code,
            "language": self.language,
            "stdin": self.stdin,
            "compile_timeout": self.compile_timeout,
            "run_timeout": self.run_timeout,
            "memory_limit_MB": self.memory_limit_mb,
            "files": {},
            "fetch_files": [],
        }

    @property
    def deadline(self) -> float:
        return self.compile_timeout + self.run_timeout + _SLACK


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

    def __init__(self, reason: str, *, busy: bool = False, delay: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.busy = busy
        self.delay = delay


class _RejectedError(Exception):
    """A 4xx: our request is wrong, and will be wrong the next time too."""


@dataclass
class _Place:
    """One sandbox: how busy we keep it, and until when another one is to be preferred."""

    url: str
    in_flight: int = 0
    last_used: float = 0.0
    avoid_until: float = 0.0

    def rank(self) -> tuple[bool, int, float]:
        return (self.avoid_until > time.monotonic(), self.in_flight, self.last_used)

    def failed(self) -> None:
        self.avoid_until = time.monotonic() + _AVOIDED


class SandboxClient:
    """Calls the least busy of several sandboxes over kept-alive connections."""

    def __init__(self, urls: Sequence[str], *, max_attempts: int, retry_budget: float) -> None:
        self._places = [_Place(url) for url in urls]
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

    async def run_code(self, request: RunCode, attempts: Attempts) -> RunCodeResponse:
        """Run a program; failed attempts are made again with jittered backoff.

        Raises:
            SandboxUnavailableError: No usable answer within the budget, or the sandbox rejects
                the request.
        """
        give_up_at = time.monotonic() + self._retry_budget
        reasons: list[str] = []
        broken = 0
        while True:
            attempts.requests += 1
            try:
                return await self._attempt(request)
            except _RejectedError as error:
                log.error("sandbox rejects our request", reason=str(error))
                raise SandboxUnavailableError([*reasons, str(error)]) from None
            except _AttemptFailedError as error:
                reasons.append(error.reason)
                attempts.failures.append(error.reason)
                broken += not error.busy
                delay = error.delay or min(_MAX_DELAY, _FIRST_DELAY * 2 ** (len(reasons) - 1))
                delay *= random.uniform(0.5, 1.5)
                if broken >= self._max_attempts or time.monotonic() + delay > give_up_at:
                    raise SandboxUnavailableError(reasons) from None
                log.warning("sandbox call failed, trying again", reason=error.reason, delay=delay)
            await asyncio.sleep(delay)

    async def _attempt(self, request: RunCode) -> RunCodeResponse:
        place = min(self._places, key=_Place.rank)
        place.in_flight += 1
        place.last_used = time.monotonic()
        try:
            async with asyncio.timeout(request.deadline):
                async with self._session.post(
                    f"{place.url}/run_code", json=request.body()
                ) as response:
                    body = await response.read()
        except aiohttp.ClientError as error:  # before TimeoutError: some of aiohttp's are both
            place.failed()
            raise _AttemptFailedError(f"{type(error).__name__}: {error}", busy=True) from None
        except TimeoutError:
            place.failed()
            raise _AttemptFailedError(f"read_timeout: {request.deadline:.0f} s") from None
        finally:
            place.in_flight -= 1
        return _parse(response.status, response.headers.get("Retry-After"), body)


def _parse(status: int, retry_after: str | None, body: bytes) -> RunCodeResponse:
    excerpt = body[:200].decode("utf-8", "replace")
    if status in (429, 502, 503, 504):
        raise _AttemptFailedError(f"http_{status}", busy=True, delay=_seconds(retry_after))
    if status >= 500:
        raise _AttemptFailedError(f"http_{status}: {excerpt}")
    if status != 200:
        raise _RejectedError(f"http_{status}: {excerpt}")
    try:
        answer = RunCodeResponse.model_validate_json(body)
    except ValidationError:
        raise _AttemptFailedError(f"unusable answer: {excerpt}") from None
    if answer.status == "SandboxError":
        raise _AttemptFailedError(f"SandboxError: {answer.message[-200:]}")
    return answer


def _seconds(header: str | None) -> float | None:
    try:
        return min(30.0, float(header)) if header else None
    except ValueError:
        return None
