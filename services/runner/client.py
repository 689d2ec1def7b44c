"""The runner's client of any OpenAI-compatible server, or of several that serve the same model."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from services.runner.answers import (
    BusyError,
    Completion,
    NoAnswerError,
    RefusedError,
    TryAgainError,
    read_completion,
)
from services.runner.connections import allow_connections, open_session
from services.runner.endpoints import Endpoint, Endpoints
from services.runner.gate import Gate
from services.runner.limit import ConcurrencyLimit
from services.runner.sampling import SamplingParams
from services.runner.served_models import choose_model, served_models
from services.runner.server_info import ServerInfo, server_info
from shared.schemas import Generation, SampleId, sha256

_CHECK_TIMEOUT = 30.0
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class _Answered:
    completion: Completion
    gen_time: float
    replica: str


@dataclass(slots=True)
class _Work:
    """A sample on its way to its completion; earlier turns go first where samples wait."""

    sample: SampleId
    turn: int
    request_id: str
    payload: dict[str, Any]
    seed: int | None
    requests: int = 0
    failures: int = 0
    trouble: str = ""


class GeneratorClient:
    """Asks for completions; use it as an async context manager.

    Args:
        base_urls: Servers of one model, with or without ``/v1``.
        model: The model to ask for; empty takes the only one served, once :meth:`check` has run.
        api_key: Bearer token, if the servers want one.
        concurrency: The most requests in flight, over all servers; see ``ConcurrencyLimit``. A
            sample whose request failed keeps its place until the next, so a server in trouble is
            asked less; one that was told to come later gives it back.
        request_timeout: Seconds for one request.
        deadline: Seconds for one sample, from the moment its first request may go.
        max_attempts: Requests for one sample that may fail.
        backoff: Seconds; the wait after failure n is drawn from 0 to ``backoff * 2**(n-1)``.
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
        backoff: float = 1.0,
    ) -> None:
        self.model = model
        self._endpoints = Endpoints(base_urls)
        # A key that was read from a file often ends in a newline, which no header may hold.
        key = (api_key or "").strip()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        limit = ConcurrencyLimit(allow_connections(concurrency))
        self._gate = Gate(limit, self._endpoints.pause)
        self._turns = itertools.count()
        self._request_timeout = request_timeout
        self._deadline = deadline
        self._max_attempts = max_attempts
        self._backoff = wait_random_exponential(multiplier=backoff, max=_LONGEST_WAIT)
        self._respite = backoff
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = open_session(self._headers, self._request_timeout)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._gate.close()
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

    async def info(self) -> ServerInfo:
        """What the server says of itself, if anything; of several servers, by URL."""
        infos = {e.url: await server_info(self._opened, e.url) for e in self._endpoints}
        return next(iter(infos.values())) if len(infos) == 1 else infos

    async def generate(
        self, sample: SampleId, run: str, messages: list[dict[str, str]], params: SamplingParams
    ) -> Generation:
        """Ask for one completion, again where that may help.

        What a sample meets is never an exception: a ``Generation`` without a completion says it in
        ``error``, which begins with ``prompt_too_long``, ``http_<status>``, ``connection``,
        ``timeout``, ``abort`` or ``bad_answer``.
        """
        payload = _payload(self.model, messages, params)
        work = _Work(sample, next(self._turns), f"{run}/{sample.key}", payload, params.seed)
        try:
            return _generation(work, await self._in_time(work))
        except (TryAgainError, RefusedError) as error:
            return _failed(work, str(error))

    async def _in_time(self, work: _Work) -> _Answered:
        try:
            async with asyncio.timeout(None) as deadline:
                return await self._until_taken(work, deadline)
        except TimeoutError:
            last = f"; before that {work.trouble}" if work.trouble else ""
            raise NoAnswerError(
                f"timeout: no completion in {self._deadline:g} s, requests: {work.requests}{last}"
            ) from None

    async def _until_taken(self, work: _Work, deadline: asyncio.Timeout) -> _Answered:
        """Take a place and ask, as often as the servers say "later"."""
        while True:
            async with self._gate.place(work.turn):
                if deadline.when() is None:
                    deadline.reschedule(asyncio.get_running_loop().time() + self._deadline)
                try:
                    return await self._until_answered(work)
                except BusyError as busy:
                    work.trouble = str(busy)
            # The gate waits as told; this is for servers that fail and are busy by turns.
            await asyncio.sleep(random.uniform(0, self._respite))

    async def _until_answered(self, work: _Work) -> _Answered:
        """Ask, again after each failure, until there have been too many."""
        tries = AsyncRetrying(
            retry=retry_if_exception_type(TryAgainError),
            stop=lambda _state: work.failures >= self._max_attempts,
            wait=self._backoff,
            reraise=True,
        )
        async for attempt in tries:
            with attempt:
                answered = await self._ask(work)
        return answered

    async def _ask(self, work: _Work) -> _Answered:
        work.requests += 1
        departure = self._gate.departs()
        with self._endpoints.borrow() as endpoint:
            try:
                answered = await self._post(endpoint, work)
            except BusyError as busy:
                endpoint.busy(busy.retry_after)
                self._gate.refused(departure)
                raise
            except TryAgainError as error:
                work.failures += 1
                work.trouble = str(error)
                endpoint.failed()
                # What befell one server need not slow down the others.
                if isinstance(error, NoAnswerError) and not self._endpoints.any_free_of_failures:
                    self._gate.refused(departure)
                raise
            endpoint.succeeded()
        self._gate.answered(departure, answered.gen_time, answered.completion.output_tokens)
        return answered

    async def _post(self, endpoint: Endpoint, work: _Work) -> _Answered:
        headers = {"X-Request-Id": work.request_id}
        started = time.monotonic()
        try:
            async with self._opened.post(
                f"{endpoint.url}/chat/completions", json=work.payload, headers=headers
            ) as response:
                body = await response.read()
        except aiohttp.ConnectionTimeoutError:
            raise NoAnswerError(f"connection: {endpoint.name}: no connection in time") from None
        except TimeoutError:
            reason = f"timeout: no answer from {endpoint.name} in {self._request_timeout:g} s"
            raise NoAnswerError(reason) from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswerError(f"connection: {endpoint.name}: {_said(error)}") from None
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
    if params.stop:
        payload["stop"] = list(params.stop)
        # vLLM's name and SGLang's for: what ended the answer stays in it.
        payload["include_stop_str_in_output"] = payload["no_stop_trim"] = True
    return payload


def _generation(work: _Work, answered: _Answered) -> Generation:
    completion = answered.completion
    return Generation(
        dataset=work.sample.dataset,
        problem_id=work.sample.problem_id,
        sample_index=work.sample.sample_index,
        completion=completion.text,
        completion_sha256=sha256(completion.text),
        finish_reason=completion.finish_reason,
        prompt_tokens=completion.prompt_tokens,
        output_tokens=completion.output_tokens,
        gen_time=answered.gen_time,
        replica=answered.replica,
        seed=work.seed,
        requests=work.requests,
        finished_at=time.time(),
    )


def _failed(work: _Work, error: str) -> Generation:
    return Generation(
        dataset=work.sample.dataset,
        problem_id=work.sample.problem_id,
        sample_index=work.sample.sample_index,
        completion="",
        completion_sha256=sha256(""),
        seed=work.seed,
        requests=work.requests,
        error=error,
        finished_at=time.time(),
    )


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
