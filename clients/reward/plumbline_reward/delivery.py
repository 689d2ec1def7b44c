"""Delivery of items to the service: coalescing, retries, time limits and cancellation.

Calls that come at about the same time, from any thread or event loop, share a request. The answers
of a request are a stream; if it is cut, only the items that are still missing are asked for again.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from plumbline_reward.batches import Batch, Item, Terms, settle
from plumbline_reward.errors import NotJudgedError, RefusedError
from plumbline_reward.responses import Refusal, Unjudged, Verdict
from plumbline_reward.retries import NoServiceError, RetryableError, delay, warn_of_no_service
from plumbline_reward.transport import Connections
from plumbline_reward.workers import Workers

WINDOW_SECONDS = 0.008
"""How long an item waits for others that come at about the same time."""
LARGEST_BATCH = 1024
LARGEST_BODY = 8 * 2**20
STREAMS = 64
"""Requests under way at once; while all are, items wait and the next batch is larger."""

_log = logging.getLogger("plumbline_reward")


class Delivery:
    """Items to one service, from all threads and event loops of a process."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._senders = Workers(STREAMS, "plumbline-reward")
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._new: defaultdict[Terms, deque[Item]] = defaultdict(deque)
        self._window_ends = 0.0
        self._parts: deque[list[Item]] = deque()
        self._delayed: list[tuple[float, int, Item]] = []
        self._limits: list[tuple[float, int, Item]] = []
        self._open = 0
        self._warned = -60.0
        self._started = False

    def submit(
        self, bodies: Sequence[bytes], terms: Terms, timeout: float
    ) -> "list[Future[Verdict]]":
        """Have items scored, together; a body is an item's JSON, ``timeout`` in seconds.

        The futures raise :class:`NotJudgedError` or :class:`RefusedError`. Cancelling one drops
        its item.

        Raises:
            RuntimeError: The first thread cannot be started.
        """
        expires = time.monotonic() + timeout
        items = [Item(body, terms, expires, timeout) for body in bodies]
        with self._changed:
            if not self._started:
                threading.Thread(
                    target=self._dispatch, name="plumbline-reward-dispatch", daemon=True
                ).start()
                self._started = True
            for item in items:
                heapq.heappush(self._limits, (expires, next(self._order), item))
                self._enqueue(item)
        for item in items:
            item.future.add_done_callback(partial(self._settled, item))
        return [item.future for item in items]

    def _enqueue(self, item: Item) -> None:
        if not any(self._new.values()):
            self._window_ends = time.monotonic() + WINDOW_SECONDS
            self._changed.notify()
        queue = self._new[item.terms]
        queue.append(item)
        if len(queue) == LARGEST_BATCH:
            self._changed.notify()

    def _settled(self, item: Item, _: object) -> None:
        with self._changed:
            item.body = b""  # the item itself stays until its time limit comes up
            if item.batch is not None:
                item.batch.forget()
                item.batch = None

    # The dispatcher's thread.

    def _dispatch(self) -> None:
        while True:
            with self._changed:
                expired = self._expired()
                self._wake_delayed()
                while self._open < STREAMS and (items := self._next_items()):
                    self._send(items)
                if not expired:
                    self._changed.wait(self._rest())
            for item in expired:
                settle(item.future, self._not_judged(item))
            del expired

    def _expired(self) -> list[Item]:
        now = time.monotonic()
        expired = []
        while self._limits and (self._limits[0][0] <= now or self._limits[0][2].future.done()):
            item = heapq.heappop(self._limits)[2]
            if not item.future.done():
                expired.append(item)
        return expired

    def _wake_delayed(self) -> None:
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            item = heapq.heappop(self._delayed)[2]
            if not item.future.done():
                self._enqueue(item)

    def _next_items(self) -> list[Item]:
        if self._parts:
            return self._parts.popleft()
        ended = time.monotonic() >= self._window_ends
        for queue in self._new.values():
            if queue and (ended or len(queue) >= LARGEST_BATCH):
                items: list[Item] = []
                size = 0
                while queue and len(items) < LARGEST_BATCH:
                    size += len(queue[0].body)
                    if items and size > LARGEST_BODY:
                        break
                    item = queue.popleft()
                    if not item.future.done():
                        items.append(item)
                if items:
                    return items
        return []

    def _rest(self) -> float | None:
        """Return the seconds until the dispatcher has something to do, None for nothing known."""
        moments = [heap[0][0] for heap in (self._delayed, self._limits) if heap]
        if self._open < STREAMS and any(self._new.values()):
            moments.append(self._window_ends)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _send(self, items: list[Item]) -> None:
        batch = Batch(self._connections, items)
        for item in items:
            item.batch = batch
            if item.future.done():  # between the check and here
                item.batch = None
                batch.forget()
        try:
            self._senders.submit(lambda: self._ask(batch))
        except RuntimeError as error:  # the process cannot have another thread now
            for item in items:
                item.batch = None
            self._retry(items, {}, RetryableError(str(error)))
        else:
            self._open += 1

    # The senders' threads.

    def _ask(self, batch: Batch) -> None:
        unjudged: list[tuple[Item, Unjudged]] = []

        def answered(item: Item, answer: Verdict | Unjudged) -> None:
            if isinstance(answer, Unjudged) and answer.reason == "test_error":
                text = "its tests cannot run, whatever the completion is"
                settle(item.future, RefusedError(f"{self._connections.url}: {text}", 422))
            elif isinstance(answer, Unjudged):
                unjudged.append((item, answer))
            else:
                settle(item.future, answer)

        refusal: Refusal | None = None
        trouble: RetryableError | None = None
        try:
            refusal = batch.ask(answered)
        except RetryableError as error:
            trouble = error
        except Exception as error:
            # A bug must not leave callers waiting for their time limit.
            _log.exception("the client failed")
            for item in batch.items:
                settle(item.future, error)
        if refusal is not None:
            self._refuse(batch, refusal)
        with self._changed:
            self._open -= 1
            missing = [item for item in batch.items if item.batch is batch]
            for item in missing:
                item.batch = None
            if refusal is not None:
                self._split(missing)
            else:
                again = {id(item): RetryableError(u.reason, u.retry_after) for item, u in unjudged}
                cut = trouble or RetryableError("the stream was cut before its end")
                self._retry(missing, again, cut)
            self._changed.notify()

    def _refuse(self, batch: Batch, refusal: Refusal) -> None:
        """Settle the items that the service refuses, if it says which or leaves no doubt."""
        everything = len(batch.items) == 1 or refusal.status == 401
        for index, item in enumerate(batch.items):
            if everything or index in refusal.items:
                text = refusal.items.get(index, refusal.text)
                error = RefusedError(f"{self._connections.url} refuses it: {text}", refusal.status)
                settle(item.future, error)

    def _split(self, items: list[Item]) -> None:
        """Ask again in two halves: one bad item must not fail the calls that it met by chance."""
        middle = (len(items) + 1) // 2
        self._parts.extend(part for part in (items[:middle], items[middle:]) if part)

    def _retry(
        self, items: list[Item], again: dict[int, RetryableError], cut: RetryableError
    ) -> None:
        now = time.monotonic()
        waits: dict[tuple[int, float | None], float] = {}  # one draw, so that they meet again
        for item in items:
            trouble = again.get(id(item), cut)
            item.attempts += 1
            item.trouble = str(trouble)
            key = (item.attempts, trouble.retry_after)
            wait = waits.setdefault(key, delay(*key))
            # Beyond its limit it is left to the limit.
            if now + wait < item.expires:
                heapq.heappush(self._delayed, (now + wait, next(self._order), item))
        if items and isinstance(cut, NoServiceError):
            warn_of_no_service(self._connections.url, cut, items[0].timeout)
        elif items and now - self._warned >= 60:
            self._warned = now
            first = items[0]
            _log.warning(
                "%s: %s; %d completions are tried again until their time limit",
                self._connections.url,
                first.trouble,
                len(items),
            )

    def _not_judged(self, item: Item) -> NotJudgedError:
        trouble = item.trouble or "no verdict has come yet"
        return NotJudgedError(
            f"not judged within {item.timeout:g} s by {self._connections.url}: {trouble}"
            f" ({item.attempts} failed attempts)"
        )
