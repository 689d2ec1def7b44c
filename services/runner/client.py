"""Client of OpenAI-compatible servers: retry with backoff, deadlines, adaptive concurrency."""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp
from pydantic import BaseModel
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from services.runner.concurrency import AdmissionGate, ConcurrencyLimit
from services.runner.endpoints import Endpoint, Endpoints, allow_connections, open_session
from services.runner.responses import (
    Completion,
    NoResponseError,
    RejectedError,
    RetryableError,
    ServerBusyError,
    ServerInfo,
    UnreachableError,
    choose_model,
    exception_message,
    read_completion,
    served_models,
    server_info,
)
from services.runner.sampling import SamplingParams
from shared.redaction import redact, remember_secrets
from shared.run_record import JsonObject
from shared.schemas import Generation, SampleId, sha256
from shared.service.answers import Answers, AnswerTooLargeError
from shared.service.tokens import authorization

# Bytes of an answer, and of all that are read at once. A completion of a million tokens has 4 MiB.
_MAX_ANSWER, _MAX_ANSWERS = 64 * 2**20, 2**30
# Seconds between attempts to connect to a server that is down, at most.
_RECONNECT = 10.0


class _ChatRequest(BaseModel):
    """Body of a chat completion request; None is not sent."""

    model: str
    messages: list[dict[str, str]]
    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None
    top_k: int | None = None
    stop: list[str] | None = None
    # vLLM's name and SGLang's for keeping the stop string in the answer.
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    completion: Completion
    gen_time: float
    replica: str


@dataclass(slots=True)
class _PendingSample:
    """A sample that waits for its completion; lower turns are admitted first."""

    sample: SampleId
    turn: int
    request_id: str
    payload: dict[str, object]
    seed: int | None
    requests: int = 0
    failures: int = 0
    last_error: str = ""


class GeneratorClient:
    """Requests completions; use it as an async context manager.

    Args:
        base_urls: Servers of one model, with or without ``/v1``.
        model: The model to request; empty means the only one served, once :meth:`check` has run.
        api_key: Bearer token, if the servers require one; a server whose URL has a user and a
            password gets these instead.
        concurrency: Upper bound of the requests in flight, over all servers; see
            ``ConcurrencyLimit``. A sample stays admitted between a failed request and its retry, so
            that a failing server gets fewer requests; a rejected one (429) queues again.
        request_timeout: Seconds for one request.
        deadline: Seconds for one sample, from the admission of its first request.
        max_attempts: Requests for one sample that may fail.
        retry_budget: Seconds without a server to connect to until failed connections count as
            failed requests.
        backoff: Seconds; the wait after failure n is drawn from 0 to ``backoff * 2**(n-1)``.
        longest_backoff: Upper bound of that wait in seconds.
        check_timeout: Seconds for each request of :meth:`check`.
        info_timeout: Seconds for each request of :meth:`info`.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        model: str,
        *,
        api_key: str | None,
        concurrency: int,
        request_timeout: float,
        deadline: float,
        max_attempts: int,
        retry_budget: float,
        backoff: float = 1.0,
        longest_backoff: float = 60.0,
        check_timeout: float = 30.0,
        info_timeout: float = 10.0,
    ) -> None:
        self.model = model
        self._endpoints = Endpoints(base_urls)
        # A key that was read from a file often ends in a newline, which a header cannot contain.
        key = (api_key or "").strip()
        remember_secrets(key)
        self._headers = authorization(key)
        limit = ConcurrencyLimit(allow_connections(concurrency))
        self._gate = AdmissionGate(limit, self._endpoints.busy_for)
        self._turns = itertools.count()
        self._request_timeout = request_timeout
        self._check_timeout = min(check_timeout, request_timeout)
        self._info_timeout = info_timeout
        self._deadline = deadline
        self._max_attempts = max_attempts
        self._retry_budget = retry_budget
        self._backoff = wait_random_exponential(multiplier=backoff, max=longest_backoff)
        self._jitter = backoff
        self._answers = Answers(max_answer=_MAX_ANSWER, max_held=_MAX_ANSWERS)
        self._opened_session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        urls = [endpoint.url for endpoint in self._endpoints]
        self._opened_session = open_session(urls, self._headers, self._request_timeout)
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
            endpoint.url: await served_models(
                self._session, endpoint.url, self._check_timeout, endpoint.headers
            )
            for endpoint in self._endpoints
        }
        self.model = choose_model(self.model, served)
        return self.model

    async def info(self) -> ServerInfo:
        """The server's ``/info``, if it has one; for several servers, by URL."""
        infos: JsonObject = {
            endpoint.url: await server_info(
                self._session, endpoint.url, self._info_timeout, endpoint.headers
            )
            for endpoint in self._endpoints
        }
        single = next(iter(infos.values())) if len(infos) == 1 else infos
        return single if isinstance(single, dict) else None

    async def generate(
        self, sample: SampleId, run: str, messages: list[dict[str, str]], params: SamplingParams
    ) -> Generation:
        """Request one completion, with retries.

        A failure is data, not an exception: the ``Generation`` has no completion, and an ``error``
        that begins with ``prompt_too_long``, ``http_<status>``, ``connection``, ``timeout``,
        ``abort`` or ``bad_answer``.
        """
        pending = _PendingSample(
            sample,
            turn=next(self._turns),
            request_id=f"{run}/{sample.key}",
            payload=_payload(self.model, messages, params),
            seed=params.seed,
        )
        try:
            return _generation(pending, await self._before_deadline(pending))
        except (RetryableError, RejectedError) as error:
            return _failed(pending, str(error))

    async def _before_deadline(self, pending: _PendingSample) -> _Answer:
        try:
            async with asyncio.timeout(None) as deadline:
                return await self._until_accepted(pending, deadline)
        except TimeoutError:
            last = f"; last error: {pending.last_error}" if pending.last_error else ""
            raise NoResponseError(
                f"timeout: no completion in {self._deadline:g} s, requests: "
                f"{pending.requests}{last}"
            ) from None

    async def _until_accepted(self, pending: _PendingSample, deadline: asyncio.Timeout) -> _Answer:
        """Queue for admission and send requests, again whenever the servers are busy."""
        while True:
            async with self._gate.admit(pending.turn):
                if deadline.when() is None:
                    deadline.reschedule(asyncio.get_running_loop().time() + self._deadline)
                try:
                    return await self._with_retries(pending)
                except ServerBusyError as busy:
                    pending.last_error = str(busy)
            # The gate waits for Retry-After; this delay is for servers that alternate between
            # failing and busy.
            await asyncio.sleep(random.uniform(0, self._jitter))

    async def _with_retries(self, pending: _PendingSample) -> _Answer:
        """Send requests, with backoff after each failure, up to the maximum of attempts."""
        retries = AsyncRetrying(
            retry=retry_if_exception_type(RetryableError),
            stop=lambda _state: pending.failures >= self._max_attempts,
            wait=self._wait,
            reraise=True,
        )
        return await retries(self._request, pending)

    def _wait(self, state: RetryCallState) -> float:
        """Seconds until the next request; whether a server is there again is tried often."""
        unreachable = state.outcome and isinstance(state.outcome.exception(), UnreachableError)
        return min(self._backoff(state), _RECONNECT if unreachable else math.inf)

    async def _request(self, pending: _PendingSample) -> _Answer:
        """Send one request; report its result to load balancer and concurrency limit."""
        pending.requests += 1
        sent = self._gate.send()
        with self._endpoints.acquire() as endpoint:
            try:
                answer = await self._post(endpoint, pending)
            except ServerBusyError as busy:
                endpoint.on_rejection(busy.retry_after)
                self._gate.on_overload(sent)
                raise
            except RetryableError as error:
                unreachable = isinstance(error, UnreachableError)
                endpoint.on_failure(unreachable=unreachable)
                if not unreachable or self._endpoints.unreachable_for() >= self._retry_budget:
                    pending.failures += 1
                pending.last_error = str(error)
                # One server that is down does not slow down the others.
                if isinstance(error, NoResponseError) and self._endpoints.all_failing:
                    self._gate.on_overload(sent)
                raise
            endpoint.on_success()
        self._gate.on_success(sent, answer.gen_time, answer.completion.output_tokens)
        return answer

    async def _post(self, endpoint: Endpoint, pending: _PendingSample) -> _Answer:
        # User and password of the URL, if it has them, replace the API key.
        headers = {"X-Request-Id": pending.request_id, **endpoint.headers}
        started = time.monotonic()
        try:
            async with self._session.post(
                f"{endpoint.url}/chat/completions", json=pending.payload, headers=headers
            ) as response:
                body = await self._answers.read(response)
        except AnswerTooLargeError as error:
            raise RetryableError(f"bad_answer: {endpoint.name}: {error}") from None
        except aiohttp.ConnectionTimeoutError:
            reason = f"connection: {endpoint.name}: connecting timed out"
            raise UnreachableError(reason) from None
        except TimeoutError:
            reason = f"timeout: no answer from {endpoint.name} in {self._request_timeout:g} s"
            raise NoResponseError(reason) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = f"connection: {endpoint.name}: {exception_message(error)}"
            raise _no_response(error)(reason) from None
        gen_time = time.monotonic() - started
        completion = read_completion(response.status, response.headers, body)
        replica = redact(response.headers.get("X-Plumbline-Replica") or endpoint.name)
        return _Answer(completion, gen_time, replica)

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened_session is None:
            raise RuntimeError("GeneratorClient is used outside of its 'async with'")
        return self._opened_session


def _no_response(error: Exception) -> type[NoResponseError]:
    """The kind of a failed connection; a certificate that is wrong stays so."""
    connecting = isinstance(error, aiohttp.ClientConnectorError)
    unreachable = connecting and not isinstance(error, aiohttp.ClientSSLError)
    return UnreachableError if unreachable else NoResponseError


def _payload(
    model: str, messages: list[dict[str, str]], params: SamplingParams
) -> dict[str, object]:
    keep_stop = True if params.stop else None
    request = _ChatRequest(
        model=model,
        messages=messages,
        temperature=params.temperature,
        top_p=params.top_p,
        max_tokens=params.max_tokens,
        seed=params.seed,
        top_k=params.top_k if params.top_k > 0 else None,
        stop=list(params.stop) or None,
        include_stop_str_in_output=keep_stop,
        no_stop_trim=keep_stop,
    )
    return request.model_dump(exclude_none=True)


def _generation(pending: _PendingSample, answer: _Answer) -> Generation:
    completion = answer.completion
    return Generation(
        dataset=pending.sample.dataset,
        problem_id=pending.sample.problem_id,
        sample_index=pending.sample.sample_index,
        completion=completion.text,
        completion_sha256=sha256(completion.text),
        finish_reason=completion.finish_reason,
        prompt_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        output_tokens_from=completion.output_tokens_from,
        gen_time=answer.gen_time,
        replica=answer.replica,
        seed=pending.seed,
        requests=pending.requests,
        finished_at=time.time(),
    )


def _failed(pending: _PendingSample, error: str) -> Generation:
    return Generation(
        dataset=pending.sample.dataset,
        problem_id=pending.sample.problem_id,
        sample_index=pending.sample.sample_index,
        completion="",
        completion_sha256=sha256(""),
        seed=pending.seed,
        requests=pending.requests,
        error=error,
        finished_at=time.time(),
    )
