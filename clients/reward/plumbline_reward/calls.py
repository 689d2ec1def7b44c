"""Single requests with retries: programs to run, and facts about the service."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.responses import failure, parse_object
from plumbline_reward.retries import NoServiceError, RetryableError, delay, warn_of_no_service
from plumbline_reward.transport import Connections, Exchange
from plumbline_reward.workers import Workers

AT_ONCE = 64

Answer = TypeVar("Answer")


class Calls:
    """Requests to one service, each in a thread of its own."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._workers = Workers(AT_ONCE, "plumbline-reward-call")

    def submit(
        self,
        method: str,
        path: str,
        make_body: Callable[[float], bytes | None],
        parse: Callable[[Mapping[str, Any]], Answer],
        timeout: float,
    ) -> "Future[Answer]":
        """Have a request made, again after failures of infrastructure, for ``timeout`` seconds.

        ``make_body`` gets the seconds that are left. The future raises :class:`NotJudgedError` or
        :class:`RefusedError`; cancelling it aborts the request.
        """
        call = _Call(self._connections, method, path, make_body, parse, timeout)
        self._workers.submit(call.make)
        return call.future


class _Call(Generic[Answer]):
    def __init__(
        self,
        connections: Connections,
        method: str,
        path: str,
        make_body: Callable[[float], bytes | None],
        parse: Callable[[Mapping[str, Any]], Answer],
        timeout: float,
    ) -> None:
        self._connections = connections
        self._method, self._path = method, path
        self._make_body, self._parse = make_body, parse
        self._timeout = timeout
        self._expires = time.monotonic() + timeout
        self._over = threading.Event()
        self._exchange: Exchange | None = None
        self.future: Future[Answer] = Future()
        self.future.add_done_callback(self._end)

    def make(self) -> None:
        outcome: Answer | Exception
        try:
            outcome = self._until_answered()
        except Exception as error:  # for whoever waits, a bug too
            outcome = error
        try:
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)
        except InvalidStateError:
            pass  # cancelled

    def _until_answered(self) -> Answer:
        attempts = 0
        trouble = "its turn did not come"
        while not self._over.is_set() and time.monotonic() < self._expires:
            try:
                return self._once()
            except RetryableError as error:
                attempts += 1
                trouble = str(error)
                if isinstance(error, NoServiceError):
                    warn_of_no_service(self._connections.url, error, self._timeout)
                wait = delay(attempts, error.retry_after)
                if time.monotonic() + wait >= self._expires:
                    break
                self._over.wait(wait)
        raise NotJudgedError(
            f"no answer within {self._timeout:g} s from {self._connections.url}{self._path}:"
            f" {trouble} ({attempts} failed attempts)"
        )

    def _once(self) -> Answer:
        exchange = self._connections.exchange(
            self._method, self._path, "application/json", self._expires
        )
        self._exchange = exchange
        if self._over.is_set():  # cancelled before it could be aborted
            raise RetryableError("cancelled")
        with exchange:
            exchange.start(self._make_body(max(self._expires - time.monotonic(), 0.001)))
            body = exchange.body()
            if exchange.status == 200:
                return self._parse(parse_object(body))
        outcome = failure(exchange.status, exchange.retry_after, body)
        if isinstance(outcome, RetryableError):
            raise outcome
        raise RefusedError(f"{self._connections.url} refuses it: {outcome.text}", outcome.status)

    def _end(self, future: "Future[Answer]") -> None:
        self._over.set()
        if future.cancelled() and self._exchange is not None:
            self._exchange.abort()
