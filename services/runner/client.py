"""Client of OpenAI-compatible servers: retry with backoff, outages, adaptive concurrency."""

import asyncio
import random
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import aiohttp

from services.runner.admission import Admission, Server
from services.runner.outages import Trouble
from services.runner.responses import (
    OutageError,
    RejectedError,
    RetryableError,
    read_completion,
    send,
    served_models,
    server_info,
)
from shared.config import GenerationConfig
from shared.errors import ServiceError
from shared.outages import Outage
from shared.process_environment import uses_proxies
from shared.redaction import redact, remember_secrets
from shared.run_record import JsonObject
from shared.schemas import Generation, SampleId, sha256
from shared.service.access import authorization
from shared.service.processes import raise_file_limit

# Bytes of an answer. A completion of a million tokens has 4 MiB.
_MAX_ANSWER = 64 * 2**20
# Open files other than connections to generators: Redis, data, logs, other clients.
_OTHER_FILES = 256
# Seconds to connect to a server, and for each request of the checks before a run.
_CONNECT, _CHECK = 30.0, 30.0
# After a minute of silence the kernel probes the peer every 15 s, and closes the connection after
# four unanswered probes. An answer may take an hour, but a dead machine must be detected.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
# Seconds without any answer until the servers are asked for a sign of life, and for that sign.
_SILENCE, _SIGN_OF_LIFE = 20.0, 10.0
_OF_REFUSAL = "see the account and the server, or name another one (generation.base_urls)"
_OF_ONE_PROMPT = ("prompt_too_long", "content_filter", "refusal")  # not of the server
_MOST_UNUSABLE = 20  # problems that failed for good before any answer, until the run ends


@dataclass(slots=True, eq=False)
class _PendingSample:
    """A sample that waits for its completion.

    ``answered_before``: completions that other samples had when this one failed first.
    """

    sample: SampleId
    payload: dict[str, object]
    requests: int = 0
    failures: int = 0
    answered_before: int | None = None

    def generation(self, completion: str = "", **fields: object) -> Generation:
        """The sample's completion or failure."""
        text = {"completion": completion, "completion_sha256": sha256(completion)}
        request = {"seed": self.payload.get("seed"), "requests": self.requests}
        sample = {**asdict(self.sample), "finished_at": time.time()}
        return Generation.model_validate({**sample, **text, **request, **fields})


class GeneratorClient:
    """Requests completions from servers of one model; use it as an async context manager.

    An empty ``config.model`` means the only model served, once :meth:`check` has run. The key is a
    bearer token; a server whose URL has user and password gets these instead. After failure n a
    request waits between 0 and ``backoff * 2**(n-1)`` seconds; a server's first pause is one.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        config: GenerationConfig,
        api_key: str | None = None,
        backoff: float = 1.0,
    ) -> None:
        self.model = config.model
        self._config = config
        servers = [Server(url, backoff) for url in base_urls]
        self._servers = list({server.url: server for server in servers}.values())
        # A key that was read from a file often ends in a newline, which a header cannot contain.
        self._key = (api_key or "").strip()
        remember_secrets(self._key)
        files = raise_file_limit(config.concurrency + _OTHER_FILES)
        self._admission = Admission(self._servers, max(1, files - _OTHER_FILES))
        self._outage = Outage(config.retry_budget)
        self._backoff = backoff
        self._failing: set[_PendingSample] = set()
        self._unusable: set[tuple[str, str]] = set()
        self._verb = ""
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        limit = self._config.request_timeout
        self._session = aiohttp.ClientSession(
            # Admission limits requests; aiohttp's default would allow only 100 connections.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_keepalive_socket),
            timeout=aiohttp.ClientTimeout(total=limit, sock_connect=_CONNECT),
            headers=authorization(self._key),
            trust_env=uses_proxies(server.url for server in self._servers),
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._session.close()

    async def check(self) -> str:
        """Request every server's models and return the name of the model to use.

        Raises:
            ServiceError: A server is down, refuses the API key, does not speak the API or does not
                serve the model; one line.
        """
        for server in self._servers:
            models = await served_models(self._session, server, _CHECK)
            names = ", ".join(models) or "none"
            if not self.model and len(models) != 1:
                raise ServiceError(f"generation.model is not set and the generator serves: {names}")
            self.model = self.model or models[0]
            if self.model not in models:
                raise ServiceError(
                    f"generator {server.url} does not serve the model {self.model!r}; it serves: "
                    f"{names}"
                )
        return self.model

    async def info(self) -> JsonObject | None:
        """The server's ``/info``, if it has one; for several servers, by URL."""
        infos = {s.url: await server_info(self._session, s) for s in self._servers}
        return dict(infos) if len(infos) > 1 else next(iter(infos.values()))

    async def generate(
        self,
        sample: SampleId,
        run: str,
        messages: list[dict[str, str]],
        fields: Mapping[str, object],
    ) -> Generation:
        """Request one completion, with retries; ``fields`` are further ones of the body.

        A failure is data, not an exception: the ``Generation`` has no completion, and an ``error``
        that begins with ``prompt_too_long``, ``content_filter``, ``refusal``, ``http_<status>``,
        ``connection``, ``timeout``, ``unfinished`` or ``bad_answer``. While no request succeeds,
        the sample waits; :meth:`trouble` reports it.
        """
        pending = _PendingSample(sample, {"model": self.model, "messages": messages, **fields})
        try:
            while True:
                async with self._admission.admit() as server:
                    try:
                        return await self._request(server, pending, f"{run}/{sample.key}")
                    except RetryableError:
                        if pending.failures >= self._config.max_attempts:
                            raise
                # Admission waits for servers that are away or busy; this delay is for a server that
                # fails this sample, which the others must not wait for.
                longest = self._backoff * 2.0 ** min(max(pending.failures - 1, 0), 6)
                await asyncio.sleep(random.uniform(0, longest))
        except (RetryableError, RejectedError) as error:
            self._count_unusable(sample, str(error))
            return pending.generation(error=str(error))
        finally:
            self._failing.discard(pending)

    async def _request(self, server: Server, pending: _PendingSample, name: str) -> Generation:
        """Send one request; report its result to server, outage and admission."""
        pending.requests += 1
        request = self._session.post(
            f"{server.url}/chat/completions",
            json=pending.payload,
            # User and password of the URL, if it has them, replace the API key.
            headers={"X-Request-Id": name, **server.headers},
            allow_redirects=False,  # a redirected POST becomes a GET
        )
        started = time.monotonic()
        try:
            with self._outage.request():
                status, headers, body = await send(request, server.name, _MAX_ANSWER)
                gen_time = time.monotonic() - started
                completion = read_completion(status, headers, body, self._config)
        except OutageError as error:
            self._on_outage(server, pending, error)
            raise
        except (RetryableError, RejectedError):
            pending.failures += 1
            server.on_success()
            raise
        server.on_success()
        self._admission.on_success()
        replica = redact(headers.get("X-Plumbline-Replica") or server.name)
        return pending.generation(**asdict(completion), gen_time=gen_time, replica=replica)

    # Outages

    def _on_outage(self, server: Server, pending: _PendingSample, error: OutageError) -> None:
        began = server.pause(error.retry_after)
        # One server that is down does not slow down the others.
        failures = 1 if error.busy else min(s.failures for s in self._servers)
        if began and failures:
            self._admission.on_overload() if failures == 1 else self._admission.on_outage()
        if not (error.busy or error.unreachable):
            # The failure is the request's own if others have succeeded since its first one.
            if pending.answered_before is None:
                pending.answered_before = self._outage.answered
            pending.failures += self._outage.answered > pending.answered_before
            self._failing.add(pending)
        self._verb = error.verb
        self._outage.failed(str(error), final=all(s.refuses for s in self._servers))

    def _count_unusable(self, sample: SampleId, reason: str) -> None:
        """End a run whose requests all fail for good."""
        if self._outage.answered or reason.startswith(_OF_ONE_PROMPT):
            return
        self._unusable.add((sample.dataset, sample.problem_id))
        if len(self._unusable) >= _MOST_UNUSABLE:
            self._verb = "gives no usable answer"
            self._outage.failed(reason, final=True)

    async def trouble(self, waiting: int) -> Trouble | None:
        """The outage of the servers, if no request succeeds; ``waiting`` are all samples left.

        After the time limit, samples that all have failed already are given up, if the servers
        answered others; so the run can end without them.
        """
        if self._outage.silent_for >= _SILENCE:
            await self._look_for_life()
        since, until = self._outage.since, self._outage.ends_at
        if since is None:
            return None
        over, final = time.time() >= until, self._outage.final
        if over and self._outage.answered and not final and waiting <= len(self._failing):
            self._admission.fail(RejectedError(self._outage.reason))
            return None
        names = " and ".join(server.url for server in self._servers)
        what = f"the generator{'s' if len(self._servers) > 1 else ''} at {names} {self._verb}"
        reason, next_try = self._outage.reason, self._admission.closed_for
        advice = _OF_REFUSAL if final else "start it"
        return Trouble(what, waiting, since, until, reason, next_try, advice)

    async def _look_for_life(self) -> None:
        """Request the models: an answer may take an hour, the report of an outage must not."""
        reason = ""
        for server in self._servers:
            try:
                await served_models(self._session, server, _SIGN_OF_LIFE)
            except ServiceError as error:
                reason = str(error)
            else:
                self._outage.spoke()
                return
        self._verb = "does not answer"
        self._outage.failed(reason, silent=True)


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every platform has these options
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
