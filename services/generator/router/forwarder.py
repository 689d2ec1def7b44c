"""A request on its way through the replicas until one answers."""

import asyncio

from aiohttp import web

from services.generator.protocol import RequestError
from services.generator.router.asked import Asked
from services.generator.router.attempt import Attempt
from services.generator.router.balancer import Balancer, Ticket
from services.generator.router.client_stream import ClientStream
from services.generator.router.connections import Connections
from services.generator.router.failures import AttemptError, Reason
from services.generator.router.lease import Lease
from services.generator.router.metrics import RouterMetrics
from shared.service.logs import get_logger

log = get_logger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_PASSED_ON = ("Accept", "traceparent", "tracestate")


class Forwarder:
    """Tries one replica after the other.

    Args:
        deadline: Seconds for a request, its waiting and all its attempts.
        max_attempts: Replicas that a request may fail on.
    """

    def __init__(
        self,
        balancer: Balancer,
        connections: Connections,
        metrics: RouterMetrics,
        *,
        deadline: float,
        max_attempts: int,
    ) -> None:
        self._balancer = balancer
        self._connections = connections
        self._metrics = metrics
        self._deadline = deadline
        self._max_attempts = max_attempts

    async def forward(
        self, request: web.Request, asked: Asked, request_id: str, client: ClientStream
    ) -> web.StreamResponse:
        """The answer, or a stream that has been sent.

        Raises:
            RequestError: 429, 502, 503 or 504: none, for now.
            AttemptError: A stream broke after the client had seen part of it; it has been told.
            ClientGoneError: The client does not listen any more.
        """
        arrived = asyncio.get_running_loop().time()
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["X-Request-Id"] = request_id
        attempt = Attempt(self._connections, self._metrics, client, headers, arrived)
        ticket = self._balancer.ticket(asked)
        deadline = arrived + self._deadline
        failures: list[AttemptError] = []
        while True:
            lease = await self._lease(ticket, deadline)
            try:
                return await self._try(attempt, lease, asked, deadline, client)
            except AttemptError as failure:
                lease.engine.failed(failure)
                if client.started:
                    await client.fail(str(failure), failure.reason)
                    raise
                failures.append(failure)
                self._log(failure, lease, request_id)
            if len(failures) == self._max_attempts:
                raise _gave_up(failures)
            self._metrics.retries.labels(failures[-1].reason).inc()
            ticket.tried.add(lease.engine)
            await self._pause(ticket, len(failures))

    async def _lease(self, ticket: Ticket, deadline: float) -> Lease:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._balancer.lease(ticket)
        except TimeoutError:
            raise self._balancer.refusal() from None

    async def _try(
        self, attempt: Attempt, lease: Lease, asked: Asked, deadline: float, client: ClientStream
    ) -> web.StreamResponse:
        finished = False
        try:
            async with lease.until(deadline):
                response = await attempt.at(lease, asked)
            finished = True
            return response
        except TimeoutError:
            message = f"no answer within {self._deadline:g} s"
            if client.started:
                raise AttemptError(Reason.TIMEOUT, message) from None
            raise RequestError(504, message, code="deadline_exceeded") from None
        finally:
            self._balancer.release(lease, finished=finished)

    def _log(self, failure: AttemptError, lease: Lease, request_id: str) -> None:
        log.debug(
            "attempt failed",
            request_id=request_id,
            replica=lease.engine.name,
            reason=failure.reason,
            error=str(failure),
        )

    async def _pause(self, ticket: Ticket, failures: int) -> None:
        if not self._balancer.closed and not self._balancer.untried(ticket):
            # All have failed on it once; to ask them again at once would be the same again.
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failures - 1)))


def _gave_up(failures: list[AttemptError]) -> RequestError:
    last = failures[-1]
    message = f"{len(failures)} attempts failed, the last one so: {last.reason}: {last}"
    return RequestError(502, message, code=f"replica_{last.reason}")
