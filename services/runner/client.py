"""Client of OpenAI-compatible servers: retry with backoff, outages, adaptive concurrency."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp

from services.runner.concurrency import AdmissionGate, ConcurrencyLimit
from services.runner.endpoints import (
    Endpoint,
    Endpoints,
    allow_connections,
    open_session,
)
from services.runner.outages import Trouble
from services.runner.responses import (
    OutageError,
    RejectedError,
    RetryableError,
    ServerBusyError,
    ServerInfo,
    UnreachableError,
    choose_model,
    read_completion,
    served_models,
    server_info,
)
from shared.config import GenerationConfig
from shared.errors import ServiceError
from shared.outages import Outage
from shared.redaction import redact, remember_secrets
from shared.run_record import JsonObject
from shared.schemas import Generation, SampleId, sha256
from shared.service.bodies import AnswerTooLargeError, read_answer
from shared.service.tokens import authorization
from shared.text import one_line

# Bytes of an answer, and of all that are read at once. A completion of a million tokens has 4 MiB.
_MAX_ANSWER = 64 * 2**20
# Seconds for each request of the checks before a run.
_CHECK, _INFO = 30.0, 10.0
# Seconds without any answer until the servers are asked for a sign of life, and for that sign.
_SILENCE, _SIGN_OF_LIFE = 20.0, 10.0
_OF_REFUSAL = "see the account and the server, or name another one (generation.base_urls)"
# Reasons that say nothing of the server.
_OF_ONE_PROMPT = ("prompt_too_long", "content_filter", "refusal")
# Problems whose requests all failed for good, before any answer, until the run ends.
_MOST_UNUSABLE = 20


@dataclass(slots=True, eq=False)
class _PendingSample:
    """A sample that waits for its completion."""

    sample: SampleId
    request_id: str
    payload: dict[str, object]
    requests: int = 0
    failures: int = 0
    answered_at_first: int | None = None

    def generation(self, **fields: object) -> Generation:
        """The sample's completion or failure, with what is known of both."""
        text = str(fields.pop("completion", ""))
        return Generation.model_validate(
            {
                "dataset": self.sample.dataset,
                "problem_id": self.sample.problem_id,
                "sample_index": self.sample.sample_index,
                "completion": text,
                "completion_sha256": sha256(text),
                "seed": self.payload.get("seed"),
                "requests": self.requests,
                "finished_at": time.time(),
                **fields,
            }
        )


class GeneratorClient:
    """Requests completions; use it as an async context manager.

    Args:
        base_urls: Servers of one model, with or without ``/v1``.
        config: Model, concurrency, time-outs and retries. An empty model means the only one served,
            once :meth:`check` has run.
        api_key: Bearer token, if the servers require one; a server whose URL has a user and a
            password gets these instead.
        backoff: Seconds; the wait after failure n is drawn from 0 to ``backoff * 2**(n-1)``. Also
            the first pause after a failure of a server.
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
        self._endpoints = Endpoints(base_urls, backoff=backoff)
        # A key that was read from a file often ends in a newline, which a header cannot contain.
        key = (api_key or "").strip()
        remember_secrets(key)
        self._headers = authorization(key)
        limit = ConcurrencyLimit(allow_connections(config.concurrency))
        self._gate = AdmissionGate(limit, self._endpoints.closed_for)
        self._outage = Outage(config.retry_budget)
        self._backoff = backoff
        self._failing: set[_PendingSample] = set()
        self._unusable: set[tuple[str, str]] = set()
        self._verb = ""
        self._looked = time.monotonic()
        self._opened_session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        urls = [endpoint.url for endpoint in self._endpoints]
        self._opened_session = open_session(urls, self._headers, self._config.request_timeout)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._gate.close()
        if self._opened_session is not None:
            await self._opened_session.close()
            self._opened_session = None

    async def check(self) -> str:
        """Request every server's models and return the name of the model to use.

        Raises:
            ServiceError: A server is down, refuses the API key, does not speak the API or does not
                serve the model; one line.
        """
        served = {
            endpoint.url: await served_models(self._session, endpoint, _CHECK)
            for endpoint in self._endpoints
        }
        self.model = choose_model(self.model, served)
        return self.model

    async def info(self) -> ServerInfo:
        """The server's ``/info``, if it has one; for several servers, by URL."""
        infos: JsonObject = {
            endpoint.url: await server_info(self._session, endpoint, _INFO)
            for endpoint in self._endpoints
        }
        single = next(iter(infos.values())) if len(infos) == 1 else infos
        return single if isinstance(single, dict) else None

    async def generate(
        self,
        sample: SampleId,
        run: str,
        messages: list[dict[str, str]],
        fields: Mapping[str, object],
    ) -> Generation:
        """Request one completion, with retries.

        A failure is data, not an exception: the ``Generation`` has no completion, and an ``error``
        that begins with ``prompt_too_long``, ``content_filter``, ``refusal``, ``http_<status>``,
        ``connection``, ``timeout``, ``unfinished`` or ``bad_answer``. While no request succeeds,
        the sample waits; :meth:`trouble` says so. ``fields`` are those of the request's body beside
        model and messages.
        """
        payload = {"model": self.model, "messages": messages, **fields}
        pending = _PendingSample(sample, f"{run}/{sample.key}", payload)
        try:
            return await self._until_answered(pending)
        except (RetryableError, RejectedError) as error:
            self._count_unusable(sample, str(error))
            return pending.generation(error=str(error))
        finally:
            self._failing.discard(pending)

    async def trouble(self, waiting: int) -> Trouble | None:
        """The outage of the servers, if no request succeeds; ``waiting`` are all samples left.

        After the time limit, samples that all have failed already are given up, if the servers
        answered others; so the run can end without them.
        """
        if self._outage.silent_for >= _SILENCE and time.monotonic() - self._looked >= _SILENCE:
            await self._look_for_life()
        since, until = self._outage.since, self._outage.ends_at
        if since is None:
            return None
        over, final = time.monotonic() >= until, self._outage.is_final
        if over and self._outage.answered and not final and waiting <= len(self._failing):
            self._gate.fail(RejectedError(self._outage.reason))
            return None
        names = " and ".join(endpoint.url for endpoint in self._endpoints)
        plural = "s" if len(list(self._endpoints)) > 1 else ""
        return Trouble(
            f"the generator{plural} at {names} {self._verb}",
            waiting,
            since,
            until,
            reason=self._outage.reason,
            next_try=self._endpoints.closed_for(),
            advice=_OF_REFUSAL if final else "start it",
        )

    async def _look_for_life(self) -> None:
        """Ask the servers for their models: an answer may take an hour, this page must not."""
        self._looked = time.monotonic()
        for endpoint in self._endpoints:
            try:
                await served_models(self._session, endpoint, _SIGN_OF_LIFE)
            except ServiceError as error:
                reason = str(error)
            else:
                self._outage.spoke()
                return
        self._verb = "does not answer"
        self._outage.failed(reason, silent=True)

    def _count_unusable(self, sample: SampleId, reason: str) -> None:
        """End a run whose requests all fail for good."""
        if self._outage.answered or reason.startswith(_OF_ONE_PROMPT):
            return
        self._unusable.add((sample.dataset, sample.problem_id))
        if len(self._unusable) >= _MOST_UNUSABLE:
            self._verb = "gives no usable answer"
            self._outage.failed(reason, final=True)

    async def _until_answered(self, pending: _PendingSample) -> Generation:
        """Queue for admission and send requests, until an answer or the maximum of failures."""
        while True:
            async with self._gate.admit():
                try:
                    return await self._request(pending)
                except RetryableError:
                    if pending.failures >= self._config.max_attempts:
                        raise
            # The gate waits for servers that are away or busy; this delay is for a server that
            # fails this sample, which the others must not wait for.
            longest = self._backoff * 2.0 ** min(max(pending.failures - 1, 0), 6)
            await asyncio.sleep(random.uniform(0, longest))

    async def _request(self, pending: _PendingSample) -> Generation:
        """Send one request; report its result to server, outage and concurrency limit."""
        pending.requests += 1
        endpoint = self._endpoints.next()
        with self._outage.request() as sent:
            try:
                generation = await self._post(endpoint, pending)
            except OutageError as error:
                self._on_outage(endpoint, pending, error)
                raise
            except (RetryableError, RejectedError):
                pending.failures += 1
                endpoint.on_success()
                raise
            endpoint.on_success()
            self._outage.succeeded(sent)
        self._gate.limit.on_success()
        return generation

    def _on_outage(self, endpoint: Endpoint, pending: _PendingSample, error: OutageError) -> None:
        if isinstance(error, ServerBusyError):
            if endpoint.pause(error.retry_after):
                self._gate.limit.on_overload()
        else:
            # One server that is down does not slow down the others.
            if endpoint.pause() and (failures := self._endpoints.failures):
                self._gate.limit.on_overload() if failures == 1 else self._gate.limit.on_outage()
            if not isinstance(error, UnreachableError):
                own, pending.answered_at_first = self._outage.is_own(pending.answered_at_first)
                pending.failures += own
                self._failing.add(pending)
        self._verb = _verb(error)
        self._outage.failed(str(error), final=self._endpoints.all_refuse)

    async def _post(self, endpoint: Endpoint, pending: _PendingSample) -> Generation:
        # User and password of the URL, if it has them, replace the API key.
        headers = {"X-Request-Id": pending.request_id, **endpoint.headers}
        started = time.monotonic()
        try:
            async with self._session.post(
                f"{endpoint.url}/chat/completions",
                json=pending.payload,
                headers=headers,
                allow_redirects=False,  # a redirected POST becomes a GET
            ) as response:
                body = await read_answer(response, _MAX_ANSWER)
        except AnswerTooLargeError as error:
            raise RetryableError(f"bad_answer: {endpoint.name}: {error}") from None
        except aiohttp.ConnectionTimeoutError:
            reason = f"connection: {endpoint.name}: connecting timed out"
            raise UnreachableError(reason) from None
        except TimeoutError:
            reason = (
                f"timeout: no answer from {endpoint.name} in {self._config.request_timeout:g} s"
            )
            raise OutageError(reason) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = f"connection: {endpoint.name}: {one_line(error)}"
            raise _outage_kind(error)(reason) from None
        gen_time = time.monotonic() - started
        completion = read_completion(response.status, response.headers, body, self._config)
        return pending.generation(
            completion=completion.text,
            completion_from="reasoning" if completion.from_reasoning else None,
            reasoning=completion.reasoning,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens,
            output_tokens=completion.output_tokens,
            output_tokens_from=completion.output_tokens_from,
            gen_time=gen_time,
            replica=redact(response.headers.get("X-Plumbline-Replica") or endpoint.name),
        )

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened_session is None:
            raise RuntimeError("GeneratorClient is used outside of its 'async with'")
        return self._opened_session


def _outage_kind(error: Exception) -> type[OutageError]:
    """The kind of a failed connection; a certificate that is wrong stays so."""
    connecting = isinstance(error, aiohttp.ClientConnectorError)
    unreachable = connecting and not isinstance(error, aiohttp.ClientSSLError)
    return UnreachableError if unreachable else OutageError


def _verb(error: OutageError) -> str:
    """What the servers do, for the report of an outage."""
    status = str(error).partition(":")[0].removeprefix("http_")
    if status.isdigit():
        return f"answers HTTP {status}"
    return "refuses connections" if isinstance(error, UnreachableError) else "does not answer"
