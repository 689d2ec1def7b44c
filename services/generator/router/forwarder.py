"""Forwarding of a request to a replica, and parsing of what the router needs of both.

A request is sent once. If its replica fails, the client gets an error and retries; the router sends
nothing more to that replica until it has generated a token again.
"""

import io
import json
import re
from asyncio import timeout
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from services.generator.protocol import CompletionRequest, RequestError
from services.generator.router.balancer import Balancer, stopping
from services.generator.router.metrics import RouterMetrics
from services.generator.router.replica import Replica
from shared.service.logs import get_logger
from shared.text import one_line

log = get_logger(__name__)
REPLICA_HEADER = "X-Plumbline-Replica"
_REQUEST_HEADERS = ("Accept", "traceparent", "tracestate")
_RESPONSE_HEADERS = ("Content-Type", "Retry-After")
_LARGE_BODY = 2**20
_CONNECT_SECONDS = 10.0
# Uvicorn closes idle connections after 5 s; on a machine that stalls a client may notice it seconds
# late. A request sent at that moment would fail as if the replica had dropped the connection.
_KEEP_ALIVE_SECONDS = 1.0
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,15})')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,15})')


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open the HTTP client for all replicas, with one unlimited connection pool.

    A request has no time limit: the health check ejects a hung replica, and the client gives up.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        # The router reads the answers, so they must not be compressed.
        headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session


class Forwarder:
    """Forwards requests to replicas.

    Attributes:
        session: HTTP client of the replicas, while the service runs.
    """

    session: aiohttp.ClientSession

    def __init__(self, balancer: Balancer, metrics: RouterMetrics) -> None:
        self._balancer = balancer
        self._metrics = metrics

    async def forward(
        self, request: web.Request, routed: CompletionRequest, request_id: str
    ) -> web.Response:
        """Forward a request to the replica with the fewest in flight; returns the response.

        Raises:
            RequestError: 429 or 503, no replica takes the request; 502, the replica failed.
        """
        headers = {
            name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers
        }
        headers["X-Request-Id"] = request_id
        replica = await self._balancer.acquire()
        try:
            async with timeout(None) as evicted:
                replica.requests.add(evicted)
                try:
                    return await self._send(replica, request.path, routed, headers)
                finally:
                    replica.requests.discard(evicted)
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            if not evicted.expired():
                replica.suspect = True
                raise self._failure(replica, "connection", one_line(error)) from None
            if self._balancer.closed:
                raise stopping() from None
            raise self._failure(replica, "ejected", "it was ejected") from None
        finally:
            self._balancer.release(replica)

    def _failure(self, replica: Replica, reason: str, message: str) -> RequestError:
        """The error of a request that its replica did not answer; requests a probe of it."""
        log.warning("request failed", replica=replica.name, reason=reason, error=message)
        replica.probe_wanted.set()
        return RequestError(502, f"{replica.name}: {message}", code=f"replica_{reason}")

    async def _send(
        self, replica: Replica, path: str, routed: CompletionRequest, headers: Mapping[str, str]
    ) -> web.Response:
        body = routed.body_for(replica.model)
        async with self.session.post(
            replica.url + path,
            data=io.BytesIO(body) if len(body) > _LARGE_BODY else body,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            if answer.status >= 500:
                text = (await answer.content.read(300)).decode("utf-8", "replace")
                message = f"HTTP {answer.status}: {' '.join(text.split())}"
                raise self._failure(replica, "server_error", message)
            content = await answer.read()
        if answer.status == 200:
            self._check(replica, content)
        kept = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
        kept[REPLICA_HEADER] = replica.name
        return web.Response(status=answer.status, body=content, headers=kept)

    def _check(self, replica: Replica, content: bytes) -> None:
        if is_aborted(content):
            raise self._failure(replica, "abort", "it aborted the request")
        usage = find_usage(content)
        if usage is None or usage.completion_tokens:
            replica.record_token()
        if usage is not None:
            self._metrics.tokens.labels("prompt").inc(usage.prompt_tokens)
            self._metrics.tokens.labels("completion").inc(usage.completion_tokens)


# Answers are searched as bytes, with as little decoding as possible.


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


def find_usage(body: bytes) -> Usage | None:
    """Find the last ``usage`` in the bytes, which is the valid one."""
    end = len(body)
    while (start := body.rfind(b'"usage"', 0, end)) >= 0:
        if _USAGE.match(body, start):
            prompt, completion = (
                pattern.search(body, start) for pattern in (_PROMPT_TOKENS, _COMPLETION_TOKENS)
            )
            return Usage(int(prompt[1]) if prompt else 0, int(completion[1]) if completion else 0)
        end = start
    return None


def is_aborted(body: bytes) -> bool:
    """Whether any choice ends with ``finish_reason: "abort"``: the engine dropped the request."""
    # Quotes in a text are escaped, so this skips nearly every body.
    if b'"abort"' not in body:
        return False
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices
    )
