"""Requests to the service from all threads and event loops of a process.

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
from typing import TypeVar

from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.responses import Refusal, Verdict, failure, parse_object, parse_stream
from plumbline_reward.retries import RetryableError, retry
from plumbline_reward.settings import Settings, wire_rule
from plumbline_reward.transport import exchange

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


def call(
    settings: Settings,
    method: str,
    path: str,
    fields: Mapping[str, object] | None,
    parse: Callable[[Mapping[str, object]], Answer],
) -> Answer:
    """Make one request; the fields of a body get the deadline beside them.

    Raises:
        RefusedError: The service refuses it.
        NotJudgedError: It was not answered within the time limit.
    """
    expires = time.monotonic() + settings.timeout

    def attempt() -> Answer:
        body = fields and json.dumps({**fields, "deadline": _left(expires)}).encode()
        with exchange(settings, expires, method, path, "application/json", body or None) as reply:
            answer = reply.body()
        if reply.status != 200:
            raise _refused(settings.url, failure(reply.status, reply.retry_after, answer))
        return parse(parse_object(answer))

    return retry(attempt, settings.url, settings.timeout, expires)


def in_thread(function: Callable[[], Answer]) -> "Future[Answer]":
    """Call a function in a daemon thread.

    Raises:
        RuntimeError: There is no thread to spare.
    """
    future: Future[Answer] = Future()

    def work() -> None:
        with _calls:
            if not future.cancelled():
                try:
                    settle(future, function())
                except Exception as error:  # a caller waits for the outcome, also of a bug
                    settle(future, error)

    _start(work)
    return future


@dataclass(eq=False)
class _Item:
    """One completion to score: its JSON, and the future of its verdict."""

    body: bytes
    settings: Settings
    expires: float
    future: "Future[Verdict]" = field(default_factory=Future)


class Delivery:
    """Requests for scores to one service, in daemon threads."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._new: list[_Item] = []
        self._collecting = False

    def submit(self, bodies: Sequence[bytes], settings: Settings) -> "list[Future[Verdict]]":
        """Have items scored; a body is an item's JSON.

        The futures raise :class:`NotJudgedError` or :class:`RefusedError`. A cancelled one is not
        asked for again.

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

    def _collect(self) -> None:
        """Deliver the next items, after another thread has begun to collect those behind them."""
        alone = True
        while alone:
            time.sleep(WINDOW_SECONDS)
            with self._slots:
                with self._lock:
                    items = self._next_items()
                    self._collecting = alone = bool(self._new)
                    if alone:
                        try:
                            _start(self._collect)
                            alone = False
                        except RuntimeError:
                            pass  # no thread to spare: this one continues
                _deliver(items)

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


def _deliver(items: list[_Item]) -> None:
    """Settle items with the same settings."""
    settings, expires = items[0].settings, items[-1].expires

    def attempt() -> None:
        while missing := [item for item in items if not item.future.done()]:
            _ask(missing, settings, expires)

    try:
        retry(attempt, settings.url, settings.timeout, expires)
    except NotJudgedError as error:
        for item in items:
            settle(item.future, NotJudgedError(str(error)))
    except Exception as error:  # a caller waits for the outcome, also of a bug
        for item in items:
            settle(item.future, error)


def _ask(items: list[_Item], settings: Settings, expires: float) -> None:
    """Send a request, and settle the items that the service judges or refuses.

    Raises:
        RetryableError: The request failed, or an item was not judged.
    """
    head = {
        "score": wire_rule(settings.score),
        "purpose": settings.purpose,
        "deadline": _left(expires),
    }
    listed = b",".join(item.body for item in items)
    body = json.dumps(head).encode()[:-1] + b', "items": [' + listed + b"]}"
    unjudged: list[RetryableError] = []
    with exchange(settings, expires, "POST", "/v1/score", "application/x-ndjson", body) as reply:
        if reply.status != 200:
            _refuse(items, failure(reply.status, reply.retry_after, reply.body()))
            return
        for index, outcome in parse_stream(reply.lines(), len(items)):
            if isinstance(outcome, RetryableError):
                unjudged.append(outcome)
            else:
                settle(items[index].future, outcome)
    if unjudged:
        raise max(unjudged, key=lambda error: error.retry_after or 0.0)


def _refuse(items: list[_Item], refusal: Refusal) -> None:
    """Settle the items that the service refuses, if it says which or leaves no doubt."""
    refused = refusal.items
    if len(items) == 1 or refusal.status == 401:
        refused = dict.fromkeys(range(len(items)), refusal.text) | dict(refused)
    if not all(0 <= index < len(items) for index in refused):
        raise RetryableError("its answer is malformed: it refuses an unknown item")
    for index, text in refused.items():
        error = _refused(items[index].settings.url, Refusal(text, refusal.status))
        settle(items[index].future, error)
    if not refused:  # a bad item must not fail the calls that it met by chance
        middle = len(items) // 2
        _deliver(items[:middle])
        _deliver(items[middle:])


def _refused(url: str, refusal: Refusal) -> RefusedError:
    return RefusedError(f"{url} refuses it: {refusal.text}", refusal.status)


def _start(work: Callable[[], None]) -> None:
    """Start a thread that does not keep the interpreter from ending while a request is under way.

    Raises:
        RuntimeError: There is none to spare.
    """
    threading.Thread(target=work, name="plumbline-reward", daemon=True).start()


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
_calls = threading.Semaphore(AT_ONCE)


def delivery(settings: Settings) -> Delivery:
    """The requests to the service that the settings name, which all clients of a process share."""
    with _lock:
        return _services.setdefault((settings.url, settings.token), Delivery())


def _forget() -> None:
    # Threads do not survive a fork.
    global _lock, _calls
    _lock, _calls = threading.Lock(), threading.Semaphore(AT_ONCE)
    _services.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
