"""Requests to the service: one HTTP/1.1 exchange, its retries, and items that share a request.

Trainers call once for each completion. Calls that come at about the same time share a request. Its
answers are a stream. If it is cut, only the items that are still missing are requested again.

No proxy is used: the service is a neighbour, and many trainers' machines have ``http_proxy`` set
for downloads. ``SSL_CERT_FILE`` names the authorities of a private certificate. Within this module
a failed request, a late one and a malformed answer are a :class:`RetryableError`.
"""

import contextlib
import http.client
import json
import logging
import os
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from plumbline_reward.errors import NotJudgedError, RefusedError, RetryableError
from plumbline_reward.responses import Verdict, failure, parse_object, parse_stream
from plumbline_reward.settings import Settings, wire_rule
from plumbline_reward.version import VERSION

WINDOW_SECONDS = 0.008
"""How long an item waits for others that come at about the same time."""
LARGEST_BATCH = 1024
LARGEST_BODY = 8 * 2**20
AT_ONCE = 64
"""Requests under way at once; while all are, items wait and the next batch is larger."""
LONGEST_DEADLINE = 3600.0
"""Seconds that the service accepts as a request's deadline; the client asks again after them."""
FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
LONGEST_RETRY_AFTER = 60.0
CONNECT_SECONDS = 10.0
# All items of one request expire with the first of them, at most so many seconds early.
_TOGETHER = 1.0
# A request is over after its deadline, and a socket does not accept any number of seconds.
_LONGEST_WAIT = 2 * LONGEST_DEADLINE
_WARN_EVERY = 60.0
_FAILURES = (OSError, http.client.HTTPException, ValueError)
# Linux notices a machine that vanished after 40 s.
_KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))

_log = logging.getLogger("plumbline_reward")
_warned: dict[str, float] = {}
Answer = TypeVar("Answer")


def call(
    settings: Settings,
    path: str,
    parse: Callable[[Mapping[str, object]], Answer],
    fields: Mapping[str, object] | None = None,
) -> Answer:
    """Post the fields with the deadline beside them, or get the path without fields.

    Raises:
        RefusedError: The service refuses the request.
        NotJudgedError: It was not answered within the time limit.
    """
    expires = time.monotonic() + settings.timeout

    def attempt() -> Answer:
        body = json.dumps({**fields, "deadline": _deadline(expires)}).encode() if fields else None
        with _exchange(settings, expires, path, body) as chunks:
            return parse(parse_object(b"".join(chunks)))

    return _retry(attempt, settings, expires)


def in_thread(function: Callable[[], Answer]) -> "Future[Answer]":
    """Call a function in one of at most ``AT_ONCE`` daemon threads.

    Raises:
        RuntimeError: The first thread cannot be started.
    """
    global _callers
    future: Future[Answer] = Future()
    with _lock:
        _calls.append((future, function))
        if _callers < AT_ONCE:
            try:
                _start(_work_calls)
                _callers += 1
            except RuntimeError:
                if not _callers:
                    _calls.pop()
                    raise
    return future


def _work_calls() -> None:
    """Make the calls that wait, the oldest first."""
    global _callers
    while True:
        with _lock:
            if not _calls:
                _callers -= 1
                return
            future, function = _calls.popleft()
        if not future.cancelled():
            try:
                _settle(future, function())
            except Exception as error:  # a caller waits for the outcome, also of a bug
                _settle(future, error)


# Items that share a request


@dataclass(eq=False)
class _Item:
    """One completion to score: its JSON, and the future of its verdict."""

    body: bytes
    expires: float
    future: "Future[Verdict]" = field(default_factory=Future)


_lock: threading.Lock
_slots: threading.Semaphore
_calls: "deque[tuple[Future[Any], Callable[[], Any]]]"
"""Calls without a thread. Scores do not wait for them: programs are long."""
_callers: int
_waiting: dict[Settings, list[_Item]] = {}
"""Items without a request; a thread will deliver those of each key."""


def _forget() -> None:
    global _lock, _slots, _calls, _callers
    _lock, _slots = threading.Lock(), threading.Semaphore(AT_ONCE)
    _calls, _callers = deque(), 0
    _waiting.clear()


_forget()
if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget)


def submit(bodies: Sequence[bytes], settings: Settings) -> "list[Future[Verdict]]":
    """Have items scored; a body is an item's JSON.

    The futures raise :class:`NotJudgedError` or :class:`RefusedError`. A cancelled one is not
    requested again.

    Raises:
        RuntimeError: The first thread cannot be started.
    """
    expires = time.monotonic() + settings.timeout
    items = [_Item(body, expires) for body in bodies]
    with _lock:
        if items and settings not in _waiting:
            _start(lambda: _deliver_waiting(settings))
            _waiting[settings] = []
        if items:
            _waiting[settings] += items
    return [item.future for item in items]


def _deliver_waiting(settings: Settings) -> None:
    """Deliver the oldest items, after another thread has taken charge of those behind them."""
    alone = True
    while alone:
        time.sleep(WINDOW_SECONDS)
        with _slots:
            with _lock:
                waiting = _waiting.pop(settings)
                size = _batch_size(waiting)
                alone = size < len(waiting)
                if alone:
                    _waiting[settings] = waiting[size:]
                    with contextlib.suppress(RuntimeError):  # without a new thread, loop again
                        _start(lambda: _deliver_waiting(settings))
                        alone = False
            _deliver(waiting[:size], settings)


def _batch_size(waiting: Sequence[_Item]) -> int:
    """Count the items at the front that may share a request; at least one."""
    size = 0
    for number, item in enumerate(waiting):
        size += len(item.body)
        late = item.expires - waiting[0].expires > _TOGETHER
        if number and (number == LARGEST_BATCH or size > LARGEST_BODY or late):
            return number
    return len(waiting)


def _deliver(items: Sequence[_Item], settings: Settings) -> None:
    """Settle the futures of items."""
    expires = items[0].expires

    def attempt() -> None:
        while missing := [item for item in items if not item.future.done()]:
            _request_scores(missing, settings, expires)

    try:
        _retry(attempt, settings, expires)
    except Exception as error:  # a caller waits for the outcome, also of a bug
        for item in items:
            own = NotJudgedError(str(error)) if isinstance(error, NotJudgedError) else error
            _settle(item.future, own)


def _request_scores(items: Sequence[_Item], settings: Settings, expires: float) -> None:
    """Send a request, and settle the items that the service judges or refuses."""
    rule, deadline = wire_rule(settings.score), _deadline(expires)
    head = {"score": rule, "purpose": settings.purpose, "deadline": deadline}
    listed = b",".join(item.body for item in items)
    body = json.dumps(head).encode()[:-1] + b', "items": [' + listed + b"]}"
    unjudged: list[RetryableError] = []
    try:
        with _exchange(settings, expires, "/v1/score", body) as chunks:
            for index, outcome in parse_stream(_lines(chunks), len(items)):
                if isinstance(outcome, RetryableError):
                    unjudged.append(outcome)
                else:
                    _settle(items[index].future, outcome)
    except RefusedError as refusal:
        _refuse(items, settings, refusal)
    if unjudged:
        raise max(unjudged, key=lambda error: error.retry_after or 0.0)


def _refuse(items: Sequence[_Item], settings: Settings, refusal: RefusedError) -> None:
    """Settle the items that the service refuses, if it names them or leaves no doubt."""
    refused = dict(refusal.items)
    if len(items) == 1 or refusal.status == 401:
        refused = dict.fromkeys(range(len(items)), str(refusal)) | refused
    if not all(0 <= index < len(items) for index in refused):
        raise RetryableError("its answer is malformed: it refuses an unknown item")
    for index, text in refused.items():
        _settle(items[index].future, RefusedError(text, refusal.status))
    if not refused:  # a bad item must not fail the calls that it met by chance
        middle = len(items) // 2
        _deliver(items[:middle], settings)
        _deliver(items[middle:], settings)


def _settle(future: "Future[Any]", outcome: object) -> None:
    """Complete a future, unless it is complete or cancelled."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _start(work: Callable[[], None]) -> None:
    """Start a thread that does not keep the interpreter from ending while a request is under way.

    Raises:
        RuntimeError: There is none to spare.
    """
    threading.Thread(target=work, name="plumbline-reward", daemon=True).start()


# Retry with exponential backoff and jitter


def _retry(attempt: Callable[[], Answer], settings: Settings, expires: float) -> Answer:
    """Repeat an attempt while it raises :class:`RetryableError`.

    Raises:
        NotJudgedError: ``expires`` would pass before the next attempt.
    """
    failed = 0
    url, timeout = settings.url, settings.timeout
    while True:
        try:
            return attempt()
        except RetryableError as error:
            failed += 1
            seconds = delay(failed, error.retry_after)
            if time.monotonic() + seconds >= expires:
                text = f"not judged within {timeout:g} s by {url}: {error}"
                raise NotJudgedError(f"{text} ({failed} failed attempts)") from None
            if time.monotonic() - _warned.get(url, -_WARN_EVERY) >= _WARN_EVERY:
                _warned[url] = time.monotonic()
                _log.warning("%s: %s; trying for %g s", url, error, timeout)
        time.sleep(seconds)


def delay(attempts: int, retry_after: float | None) -> float:
    """Choose the seconds before the next attempt, after ``attempts`` failed ones (at least 1).

    Jitter keeps the clients of one trainer from coming back at the same moment. A proxy that asks
    for no wait at all gets the usual one: otherwise all items would be sent without a pause.
    """
    if retry_after:
        return min(retry_after, LONGEST_RETRY_AFTER) * random.uniform(1.0, 1.25)
    longest = min(FIRST_DELAY * 2.0 ** min(attempts - 1, 16), LONGEST_DELAY)
    return longest * random.uniform(0.5, 1.0)


# One exchange


@contextlib.contextmanager
def _exchange(
    settings: Settings, expires: float, path: str, body: bytes | None
) -> Iterator[Iterator[bytes]]:
    """Post a JSON body, or get without one; yields the chunks of the answer's body.

    Raises:
        RefusedError: The service refuses the request for good.
        RetryableError: It answers something else than 200, or not until ``expires``.
    """
    parts = urlsplit(settings.url)
    headers = {
        "User-Agent": f"plumbline-reward/{VERSION}",
        "Content-Type": "application/json",
        "Accept": "application/x-ndjson" if path == "/v1/score" else "application/json",
        **({"Authorization": f"Bearer {settings.token}"} if settings.token else {}),
    }
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, context=_tls())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port)
    )
    advice = "; to start a service: plumb reward --embedded"
    try:
        with contextlib.closing(connection):
            connection.timeout = min(_left(expires), CONNECT_SECONDS)
            connection.connect()
            advice = ""
            sock = connection.sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.settimeout(_left(expires))
            connection.request("POST" if body else "GET", parts.path + path, body, headers)
            with contextlib.closing(connection.getresponse()) as response:
                chunks = _chunks(response, sock, expires)
                if response.status != 200:
                    retry_after = response.headers.get("Retry-After")
                    raise failure(settings.url, response.status, retry_after, b"".join(chunks))
                yield chunks
    except TimeoutError:
        raise RetryableError(f"it does not answer in time{advice}") from None
    except _FAILURES as error:
        reason = error.strerror if isinstance(error, OSError) else None
        text = reason or str(error) or type(error).__name__
        raise RetryableError(f"the connection failed: {text}{advice}") from None


def _chunks(
    answer: http.client.HTTPResponse, sock: socket.socket, expires: float
) -> Iterator[bytes]:
    """Yield the body as it arrives; reading fails at ``expires`` on the monotonic clock."""
    while True:
        sock.settimeout(_left(expires))
        if data := answer.read1(65536):
            yield data
        elif answer.length:
            raise RetryableError("the connection broke within an answer")
        else:
            return


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a body as they arrive, but no empty ones."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield rest


def _left(expires: float) -> float:
    """The seconds until a moment, as a socket accepts them; raises TimeoutError after it."""
    left = expires - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return min(left, _LONGEST_WAIT)


def _deadline(expires: float) -> float:
    """The seconds until a moment, as the service accepts them."""
    return round(max(0.001, min(expires - time.monotonic(), LONGEST_DEADLINE)), 3)


@lru_cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
