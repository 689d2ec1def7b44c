"""One request to one replica."""

import asyncio

import aiohttp
from aiohttp import web

from services.generator.router.answers import Usage, aborted, usage_of
from services.generator.router.asked import Asked
from services.generator.router.client_stream import ClientStream
from services.generator.router.connections import Connections
from services.generator.router.failures import AttemptError, Reason, connection_failed
from services.generator.router.lease import Lease
from services.generator.router.metrics import RouterMetrics
from services.generator.router.relay import relay

REPLICA_HEADER = "X-Plumbline-Replica"
_PASSED_ON = ("Content-Type", "Retry-After")


class Attempt:
    """What all attempts of a request have in common.

    Args:
        headers: What goes along to the replica.
        arrived: Loop time at which the request came.
    """

    def __init__(
        self,
        connections: Connections,
        metrics: RouterMetrics,
        client: ClientStream,
        headers: dict[str, str],
        arrived: float,
    ) -> None:
        self._connections = connections
        self._metrics = metrics
        self._client = client
        self._headers = headers
        self._arrived = arrived

    async def at(self, lease: Lease, asked: Asked) -> web.StreamResponse:
        """The replica's answer: whole and not sent yet, or a stream that has been passed on.

        Raises:
            AttemptError: There is none, or a stream broke.
            ClientGoneError: The client does not listen any more.
        """
        engine = lease.engine
        try:
            async with self._connections.post(
                engine.url + asked.path, asked.body_for(engine.model), self._headers
            ) as upstream:
                return await self._answer(upstream, lease)
        except aiohttp.ConnectionTimeoutError as error:
            raise connection_failed(error) from None
        except aiohttp.ServerTimeoutError:
            raise AttemptError(Reason.TIMEOUT, "no byte of an answer for too long") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise connection_failed(error) from None

    async def _answer(self, upstream: aiohttp.ClientResponse, lease: Lease) -> web.StreamResponse:
        if upstream.status >= 500:
            said = (await upstream.content.read(300)).decode("utf-8", "replace")
            message = f"HTTP {upstream.status}: {' '.join(said.split())}"
            raise AttemptError(Reason.SERVER_ERROR, message)
        if upstream.status == 200 and upstream.content_type == "text/event-stream":
            self._count(await relay(upstream, lease, self._client, lambda: self._start(lease)))
            return self._client.response
        body = await upstream.read()
        if upstream.status == 200:
            self._judge(body, lease)
        headers = {name: upstream.headers[name] for name in _PASSED_ON if name in upstream.headers}
        headers[REPLICA_HEADER] = lease.engine.name
        return web.Response(status=upstream.status, body=body, headers=headers)

    async def _start(self, lease: Lease) -> None:
        waited = asyncio.get_running_loop().time() - self._arrived
        self._metrics.time_to_first_token.observe(waited)
        request_id = self._headers["X-Request-Id"]
        await self._client.start({REPLICA_HEADER: lease.engine.name, "X-Request-Id": request_id})

    def _judge(self, body: bytes, lease: Lease) -> None:
        if aborted(body):
            raise AttemptError(Reason.ABORT, "the replica aborted the request")
        usage = usage_of(body)
        self._count(usage)
        if usage is None or usage.completion_tokens:
            lease.engine.gave_token()

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._metrics.tokens.labels("prompt").inc(usage.prompt_tokens)
            self._metrics.tokens.labels("completion").inc(usage.completion_tokens)
