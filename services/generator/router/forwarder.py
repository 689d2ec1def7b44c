"""Request forwarding: retry failed attempts on other replicas, with backoff."""

import asyncio
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from services.generator.protocol import RequestError
from services.generator.router.balancer import Balancer, Ticket
from services.generator.router.connections import Connections
from services.generator.router.metrics import RouterMetrics
from services.generator.router.replica import (
    AttemptError,
    FailureReason,
    ReplicaSlot,
    connection_failed,
)
from services.generator.router.requests import RoutedRequest
from services.generator.router.responses import find_usage, is_aborted_body
from shared.service.logs import get_logger

log = get_logger(__name__)
REPLICA_HEADER = "X-Plumbline-Replica"
_REQUEST_HEADERS = ("Accept", "traceparent", "tracestate")
_RESPONSE_HEADERS = ("Content-Type", "Retry-After")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of the retries of one request. Times are seconds.

    Args:
        deadline: Limit for a request, including its time in the queue and all attempts.
        max_attempts: Number of attempts.
        first_pause: Pause before the next attempt if every replica has failed; doubles each time.
        longest_pause: Limit of that pause.
    """

    deadline: float
    max_attempts: int
    first_pause: float = 0.1
    longest_pause: float = 2.0

    def pause(self, failures: int) -> float:
        return min(self.longest_pause, self.first_pause * 2.0 ** (failures - 1))


class Forwarder:
    """Forwards a request to one replica after another until one answers."""

    def __init__(
        self,
        balancer: Balancer,
        connections: Connections,
        metrics: RouterMetrics,
        policy: RetryPolicy,
    ) -> None:
        self._balancer = balancer
        self._connections = connections
        self._metrics = metrics
        self._policy = policy

    async def forward(
        self, request: web.Request, routed: RoutedRequest, request_id: str
    ) -> web.Response:
        """Forward a request; returns the response.

        Raises:
            RequestError: 429, 502, 503 or 504: no replica answered.
        """
        headers = {
            name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers
        }
        headers["X-Request-Id"] = request_id
        attempt = _Attempt(self._connections, self._metrics, routed, headers)
        ticket = self._balancer.ticket()
        deadline = asyncio.get_running_loop().time() + self._policy.deadline
        failures: list[AttemptError] = []
        while True:
            slot = await self._acquire(ticket, deadline)
            try:
                return await self._try(attempt, slot, deadline)
            except AttemptError as failure:
                slot.engine.failed(failure)
                failures.append(failure)
                self._log(failure, slot, request_id)
            if len(failures) == self._policy.max_attempts:
                raise _all_failed(failures)
            self._metrics.retries.labels(failures[-1].reason).inc()
            ticket.tried.add(slot.engine)
            await self._pause(ticket, len(failures))

    async def _acquire(self, ticket: Ticket, deadline: float) -> ReplicaSlot:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._balancer.acquire(ticket)
        except TimeoutError:
            raise self._balancer.refusal() from None

    async def _try(self, attempt: "_Attempt", slot: ReplicaSlot, deadline: float) -> web.Response:
        try:
            async with slot.until(deadline):
                return await attempt.send(slot)
        except TimeoutError:
            message = f"no answer within {self._policy.deadline:g} s"
            raise RequestError(504, message, code="deadline_exceeded") from None
        finally:
            self._balancer.release(slot)

    def _log(self, failure: AttemptError, slot: ReplicaSlot, request_id: str) -> None:
        log.debug(
            "attempt failed",
            request_id=request_id,
            replica=slot.engine.name,
            reason=failure.reason,
            error=str(failure),
        )

    async def _pause(self, ticket: Ticket, failures: int) -> None:
        if not self._balancer.closed and not self._balancer.untried(ticket):
            # Every replica has failed; an immediate retry would most likely fail again.
            await asyncio.sleep(self._policy.pause(failures))


def _all_failed(failures: list[AttemptError]) -> RequestError:
    last = failures[-1]
    message = f"{len(failures)} attempts failed; the last error was {last.reason}: {last}"
    return RequestError(502, message, code=f"replica_{last.reason}")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """State shared by all attempts of a request; ``headers`` are sent to the replica."""

    connections: Connections
    metrics: RouterMetrics
    routed: RoutedRequest
    headers: dict[str, str]

    async def send(self, slot: ReplicaSlot) -> web.Response:
        """Send the request; returns the response.

        Raises:
            AttemptError: The replica did not answer.
        """
        url = slot.engine.url + self.routed.path
        body = self.routed.body_for(slot.engine.model)
        try:
            async with self.connections.post(url, body, self.headers) as upstream:
                return await self._answer(upstream, slot)
        except aiohttp.ConnectionTimeoutError as error:
            raise connection_failed(error) from None
        except aiohttp.ServerTimeoutError:
            message = "the replica sent nothing for too long"
            raise AttemptError(FailureReason.TIMEOUT, message) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise connection_failed(error) from None

    async def _answer(self, upstream: aiohttp.ClientResponse, slot: ReplicaSlot) -> web.Response:
        if upstream.status >= 500:
            text = (await upstream.content.read(300)).decode("utf-8", "replace")
            message = f"HTTP {upstream.status}: {' '.join(text.split())}"
            raise AttemptError(FailureReason.SERVER_ERROR, message)
        body = await upstream.read()
        if upstream.status == 200:
            self._check_body(body, slot)
        found = upstream.headers
        headers = {name: found[name] for name in _RESPONSE_HEADERS if name in found}
        headers[REPLICA_HEADER] = slot.engine.name
        return web.Response(status=upstream.status, body=body, headers=headers)

    def _check_body(self, body: bytes, slot: ReplicaSlot) -> None:
        if is_aborted_body(body):
            raise AttemptError(FailureReason.ABORT, "the replica aborted the request")
        usage = find_usage(body)
        if usage is None or usage.completion_tokens:
            slot.engine.record_token()
        if usage is not None:
            self.metrics.tokens.labels("prompt").inc(usage.prompt_tokens)
            self.metrics.tokens.labels("completion").inc(usage.completion_tokens)
