"""Requests to one service from all threads and event loops of a process.

Trainers call once for each completion. Calls that come at about the same time share a request. Its
answers are a stream. If it is cut, only the items that are still missing are asked for again.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.responses import Refusal, Verdict, failure, parse_object, parse_stream
from plumbline_reward.retries import Attempts, RetryableError
from plumbline_reward.settings import Settings, wire_rule
from plumbline_reward.transport import Exchange

WINDOW_SECONDS = 0.008
"""How long an item waits for others that come at about the same time."""
LARGEST_BATCH = 1024
LARGEST_BODY = 8 * 2**20
AT_ONCE = 64
"""Requests under way at once; while all are, items wait and the next batch is larger."""
LONGEST_DEADLINE = 3600.0
"""Seconds that the service accepts as a request's deadline; the client asks again after them."""
# Items of one request expire with the last of them, at most so many seconds later than they would.
_TOGETHER = 1.0

Answer = TypeVar("Answer")


@dataclass(eq=False)
class _Item:
    """One completion to score: its JSON, and the future of its verdict."""

    body: bytes
    settings: Settings
    expires: float
    future: "Future[Verdict]" = field(default_factory=Future)


class Delivery:
    """Requests to the service at ``url``, in daemon threads."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token
        self._scores, self._calls = threading.Semaphore(AT_ONCE), threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._new: list[_Item] = []
        self._collecting = False

    def submit(self, bodies: Sequence[bytes], settings: Settings) -> "list[Future[Verdict]]":
        """Have items scored; a body is an item's JSON.

        The futures raise :class:`NotJudgedError` or :class:`RefusedError`. Cancelling one drops
        its item.

        Raises:
            RuntimeError: The first thread cannot be started.
        """
        expires = time.monotonic() + settings.timeout
        items = [_Item(body, settings, expires) for body in bodies]
        with self._lock:
            if items and not self._collecting:
                _start(self._collect)
                self._collecting = True
            self._new += items
        return [item.future for item in items]

    def call(
        self,
        method: str,
        path: str,
        fields: Mapping[str, object] | None,
        parse: Callable[[Mapping[str, object]], Answer],
        timeout: float,
    ) -> "Future[Answer]":
        """Make one request; the fields of a body get the deadline beside them.

        The future raises :class:`NotJudgedError` or :class:`RefusedError`; cancelling it aborts the
        request.

        Raises:
            RuntimeError: No thread can be started.
        """
        attempts = Attempts(self._url, timeout, time.monotonic() + timeout)
        future: Future[Answer] = Future()

        def ask() -> None:
            with self._exchange([future], attempts.expires) as exchange:
                body = None if fields is None else {**fields, "deadline": _left(attempts.expires)}
                sent = None if body is None else json.dumps(body).encode()
                exchange.send(method, path, "application/json", sent)
                answer = exchange.body()
            if exchange.response.status == 200:
                settle(future, parse(parse_object(answer)))
            else:
                refusal = _refusal(exchange, answer)
                settle(future, self._refused(refusal.text, refusal.status))

        def work() -> None:
            with self._calls:
                self._until_done([future], ask, attempts)

        _start(work)
        return future

    def _exchange(self, futures: "Sequence[Future[Any]]", expires: float) -> Exchange:
        """Open a request that is aborted once all who wait for it have gone."""
        exchange = Exchange(self._url, self._token, expires)

        def done(future: "Future[Any]") -> None:
            if future.cancelled() and all(one.done() for one in futures):
                exchange.abort()

        for future in futures:
            future.add_done_callback(done)
        return exchange

    def _until_done(
        self,
        futures: "Sequence[Future[Any]]",
        ask: Callable[[], None],
        attempts: Attempts,
    ) -> None:
        """Ask again until all futures are done or the time limit has passed."""
        try:
            while not all(future.done() for future in futures):
                try:
                    ask()
                except RetryableError as error:
                    if not all(future.done() for future in futures):
                        attempts.wait(error)
        except NotJudgedError as error:
            for future in futures:
                settle(future, NotJudgedError(str(error)))
        except Exception as error:  # a caller waits for the outcome, also of a bug
            for future in futures:
                settle(future, error)

    # Scores

    def _collect(self) -> None:
        """Deliver the next items, after another thread has begun to collect those behind them."""
        alone = True
        while alone:
            time.sleep(WINDOW_SECONDS)
            with self._scores:
                with self._lock:
                    items = self._next_items()
                    self._collecting = alone = bool(self._new)
                    if alone:
                        try:
                            _start(self._collect)
                            alone = False
                        except RuntimeError:
                            pass  # no thread to spare: this one continues
                self._deliver(items)

    def _next_items(self) -> list[_Item]:
        """Remove and return the oldest item and the items that may share its request."""
        first, size = self._new[0], 0
        items: list[_Item] = []
        later: list[_Item] = []
        for item in self._new:
            size += len(item.body)
            fits = len(items) < LARGEST_BATCH and size <= LARGEST_BODY
            alike = item.settings == first.settings and item.expires - first.expires <= _TOGETHER
            (items if item is first or (fits and alike) else later).append(item)
        self._new = later
        return items

    def _deliver(self, items: list[_Item]) -> None:
        attempts = Attempts(self._url, items[0].settings.timeout, items[-1].expires)

        def ask() -> None:
            self._ask([item for item in items if not item.future.done()], attempts.expires)

        self._until_done([item.future for item in items], ask, attempts)

    def _ask(self, items: list[_Item], expires: float) -> None:
        """Send a request, and settle the items that the service judges or refuses.

        Raises:
            RetryableError: The request failed, or an item was not judged.
        """
        unjudged: list[RetryableError] = []
        with self._exchange([item.future for item in items], expires) as exchange:
            exchange.send("POST", "/v1/score", "application/x-ndjson", _body(items, expires))
            if exchange.response.status != 200:
                self._refuse(items, _refusal(exchange, exchange.body()))
                return
            for index, answer in parse_stream(exchange.lines(), len(items)):
                if isinstance(answer, Verdict):
                    settle(items[index].future, answer)
                elif answer.reason == "test_error":
                    text = "its tests cannot run, whatever the completion is"
                    settle(items[index].future, RefusedError(f"{self._url}: {text}", 422))
                else:
                    unjudged.append(RetryableError(answer.reason, answer.retry_after))
        if unjudged:
            raise max(unjudged, key=lambda error: error.retry_after or 0.0)

    def _refuse(self, items: list[_Item], refusal: Refusal) -> None:
        """Settle the items that the service refuses, if it says which or leaves no doubt."""
        refused = refusal.items
        if len(items) == 1 or refusal.status == 401:
            refused = dict.fromkeys(range(len(items)), refusal.text) | dict(refused)
        if not all(0 <= index < len(items) for index in refused):
            raise RetryableError("its answer is malformed: it refuses an unknown item")
        for index, text in refused.items():
            settle(items[index].future, self._refused(text, refusal.status))
        if not refused:  # a bad item must not fail the calls that it met by chance
            middle = len(items) // 2
            self._deliver(items[:middle])
            self._deliver(items[middle:])

    def _refused(self, text: str, status: int) -> RefusedError:
        return RefusedError(f"{self._url} refuses it: {text}", status)


def _start(work: Callable[[], None]) -> None:
    """Start a thread that does not keep the interpreter from ending while a request is under way.

    Raises:
        RuntimeError: There is none to spare.
    """
    threading.Thread(target=work, name="plumbline-reward", daemon=True).start()


def _refusal(exchange: Exchange, body: bytes) -> Refusal:
    return failure(exchange.response.status, exchange.response.headers.get("Retry-After"), body)


def _body(items: Sequence[_Item], expires: float) -> bytes:
    settings = items[0].settings
    head = {
        "score": wire_rule(settings.score),
        "purpose": settings.purpose,
        "deadline": _left(expires),
    }
    listed = b",".join(item.body for item in items)
    return json.dumps(head).encode()[:-1] + b', "items": [' + listed + b"]}"


def _left(expires: float) -> float:
    """The seconds until a moment, as the service takes them for a deadline."""
    return round(max(0.001, min(expires - time.monotonic(), LONGEST_DEADLINE)), 3)


def settle(future: "Future[Answer]", outcome: Answer | Exception) -> None:
    """Complete a future, unless somebody else did or it was cancelled."""
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass


_services: dict[tuple[str, str | None], Delivery] = {}
_lock = threading.Lock()


def delivery(settings: Settings) -> Delivery:
    """The requests to the service that the settings name, which all clients of a process share."""
    key = (settings.url, settings.token)
    with _lock:
        if key not in _services:
            _services[key] = Delivery(*key)
        return _services[key]


def _forget() -> None:
    # Threads do not survive a fork.
    global _lock
    _lock = threading.Lock()
    _services.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
