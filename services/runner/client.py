"""The runner's client of any OpenAI-compatible server, or of several that serve the same model."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from services.runner.answers import (
    Completion,
    RefusedError,
    TryAgainError,
    read_completion,
)
from services.runner.endpoints import Endpoint, Endpoints
from services.runner.served_models import choose_model, served_models
from shared.schemas import Generation, SampleId, sha256

_CHECK_TIMEOUT = 30.0
_LONGEST_WAIT = 60.0
_LONGEST_RETRY_AFTER = 600.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. ``top_k`` below 1 is no limit and not sent."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None
    top_k: int = -1


@dataclass(frozen=True, slots=True)
class _Answered:
    completion: Completion
    gen_time: float
    replica: str


class GeneratorClient:
    """Asks for completions; use it as an async context manager.

    Args:
        base_urls: Servers of one model, with or without ``/v1``.
        model: The model to ask for; empty takes the only one served, once :meth:`check` has run.
        api_key: Bearer token, if the servers want one.
        concurrency: Samples in work at a time, over all servers. A sample that waits for its
            next try keeps its place, so a server in trouble is asked less.
        request_timeout: Seconds for one request.
        max_attempts: Requests for one sample.
        backoff: Seconds; the wait before try n is drawn from 0 to ``backoff * 2**(n-2)``.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        model: str,
        *,
        api_key: str | None,
        concurrency: int,
        request_timeout: float,
        max_attempts: int,
        backoff: float = 1.0,
    ) -> None:
        self.model = model
        self._endpoints = Endpoints(base_urls)
        # A key that was read from a file often ends in a newline, which no header may hold.
        key = (api_key or "").strip()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._slots = asyncio.Semaphore(concurrency)
        self._request_timeout = request_timeout
        self._max_attempts = max_attempts
        self._backoff = wait_random_exponential(multiplier=backoff, max=_LONGEST_WAIT)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # Our own semaphore is the limit; aiohttp's 100 connections would be a hidden one.
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._request_timeout),
            headers=self._headers,
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def check(self) -> str:
        """Ask every server for its models and return the name of the model to use.

        Raises:
            ServiceError: A server is down, refuses the API key, does not speak the API or does not
                serve the model; one line.
        """
        timeout = min(_CHECK_TIMEOUT, self._request_timeout)
        served = {
            endpoint.url: await served_models(self._opened, endpoint.url, timeout)
            for endpoint in self._endpoints
        }
        self.model = choose_model(self.model, served)
        return self.model

    async def generate(
        self, sample: SampleId, run: str, messages: list[dict[str, str]], params: SamplingParams
    ) -> Generation:
        """Ask for one completion, again where that may help.

        What a sample meets is never an exception: a ``Generation`` without a completion says it in
        ``error``, which begins with ``prompt_too_long``, ``http_<status>``, ``connection``,
        ``timeout``, ``abort`` or ``bad_answer``.
        """
        payload = _payload(self.model, messages, params)
        request_id = f"{run}/{sample.key}"
        tries = 0
        async with self._slots:
            try:
                async for attempt in self._attempts():
                    with attempt:
                        tries += 1
                        answered = await self._ask(payload, request_id)
            except (TryAgainError, RefusedError) as error:
                return _failed(sample, str(error), tries)
        return _generation(sample, answered, tries)

    def _attempts(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(TryAgainError),
            stop=stop_after_attempt(self._max_attempts),
            wait=self._wait,
            reraise=True,
        )

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        retry_after = error.retry_after if isinstance(error, TryAgainError) else None
        # What one server asks for need not hold up a request that another can take.
        if retry_after is None or self._endpoints.any_free_of_failures:
            return self._backoff(state)
        return min(retry_after, _LONGEST_RETRY_AFTER) * random.uniform(1.0, 1.25)

    async def _ask(self, payload: dict[str, Any], request_id: str) -> _Answered:
        with self._endpoints.borrow() as endpoint:
            try:
                answered = await self._post(endpoint, payload, request_id)
            except TryAgainError as error:
                endpoint.failed(error.retry_after)
                raise
            endpoint.succeeded()
            return answered

    async def _post(
        self, endpoint: Endpoint, payload: dict[str, Any], request_id: str
    ) -> _Answered:
        headers = {"X-Request-Id": request_id}
        started = time.monotonic()
        try:
            async with self._opened.post(
                f"{endpoint.url}/chat/completions", json=payload, headers=headers
            ) as response:
                body = await response.read()
        except TimeoutError:
            reason = f"timeout: no answer from {endpoint.name} in {self._request_timeout:g} s"
            raise TryAgainError(reason) from None
        except (aiohttp.ClientError, OSError) as error:
            raise TryAgainError(f"connection: {endpoint.name}: {_said(error)}") from None
        gen_time = time.monotonic() - started
        completion = read_completion(response.status, response.headers, body)
        replica = response.headers.get("X-Plumbline-Replica") or endpoint.name
        return _Answered(completion, gen_time, replica)

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("GeneratorClient is used outside of its 'async with'")
        return self._session


def _payload(model: str, messages: list[dict[str, str]], params: SamplingParams) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "max_tokens": params.max_tokens,
    }
    if params.seed is not None:
        payload["seed"] = params.seed
    if params.top_k > 0:
        payload["top_k"] = params.top_k
    return payload


def _generation(sample: SampleId, answered: _Answered, tries: int) -> Generation:
    completion = answered.completion
    return Generation(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        completion=completion.text,
        completion_sha256=sha256(completion.text),
        finish_reason=completion.finish_reason,
        prompt_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        gen_time=answered.gen_time,
        replica=answered.replica,
        requests=tries,
        finished_at=time.time(),
    )


def _failed(sample: SampleId, error: str, tries: int) -> Generation:
    return Generation(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        completion="",
        completion_sha256=sha256(""),
        requests=tries,
        error=error,
        finished_at=time.time(),
    )


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
