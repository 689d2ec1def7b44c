"""A batch of items on its way: one request, whose answers arrive as a stream of JSON lines."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from plumbline_reward.responses import (
    Refusal,
    Unjudged,
    Verdict,
    failure,
    parse_object,
    parse_verdict,
)
from plumbline_reward.retries import RetryableError
from plumbline_reward.settings import Purpose, wire_rule
from plumbline_reward.transport import Connections

LONGEST_DEADLINE = 3600.0
"""Seconds that the service accepts as a request's deadline; the client asks again after them."""

_NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Terms:
    """The fields of a request that all its items share: rule in its short form, and purpose."""

    score: str
    purpose: Purpose


@dataclass(eq=False)
class Item:
    """One completion to score: its JSON, its place in time, and the future of its verdict."""

    body: bytes
    terms: Terms
    expires: float
    timeout: float
    future: "Future[Verdict]" = field(default_factory=Future)
    attempts: int = 0
    trouble: str = ""
    batch: "Batch | None" = None


class Batch:
    """Items of the same terms in one request.

    When nobody waits any more for those of its items that the service has not answered, the request
    is aborted, so that the service drops their work.
    """

    def __init__(self, connections: Connections, items: list[Item]) -> None:
        self.items = items
        self._awaited = len(items)
        self._unanswered = len(items)
        self._expires = max(item.expires for item in items)
        self._exchange = connections.exchange("POST", "/v1/score", _NDJSON, self._expires)

    def forget(self) -> None:
        """Count one item as settled, answered or not; called under the delivery's lock."""
        self._awaited -= 1
        if self._awaited == 0 and self._unanswered > 0:
            self._exchange.abort()

    def ask(self, answered: Callable[[Item, Verdict | Unjudged], None]) -> Refusal | None:
        """Send the request and hand over each answer as it arrives, or return the refusal.

        Raises:
            RetryableError: The request failed or the stream was cut; some items may have been
                answered before.
        """
        with self._exchange as exchange:
            exchange.start(self._body())
            if exchange.status != 200:
                outcome = failure(exchange.status, exchange.retry_after, exchange.body())
                if isinstance(outcome, RetryableError):
                    raise outcome
                if not all(0 <= index < len(self.items) for index in outcome.items):
                    raise RetryableError("its answer is malformed: it refuses an unknown item")
                return outcome
            for index, answer in _stream(exchange.lines(), len(self.items)):
                self._unanswered -= 1
                answered(self.items[index], answer)
        return None

    def _body(self) -> bytes:
        terms = self.items[0].terms
        left = min(self._expires - time.monotonic(), LONGEST_DEADLINE)
        head = {
            "score": wire_rule(terms.score),
            "purpose": terms.purpose,
            "deadline": round(max(left, 0.001), 3),
        }
        items = b",".join(item.body for item in self.items)
        return json.dumps(head).encode()[:-1] + b', "items": [' + items + b"]}"


def _stream(lines: Iterator[bytes], number: int) -> Iterator[tuple[int, Verdict | Unjudged]]:
    """Parse a stream of answers about ``number`` items, each of which must come exactly once."""
    missing = set(range(number))
    unjudged = 0
    for line in lines:
        answer = parse_object(line)
        if answer.get("done") is True and "index" not in answer:
            counts = (answer.get("judged"), answer.get("unjudged"))
            if missing or counts != (number - unjudged, unjudged):
                raise RetryableError("its answer is malformed: the stream's end does not fit")
            if next(lines, None) is not None:  # reads the body's end, so the connection is free
                raise RetryableError("its answer is malformed: a line behind the stream's end")
            return
        index = answer.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index not in missing:
            raise RetryableError(f"its answer is malformed: index {str(index)[:40]}")
        outcome = parse_verdict(answer)
        missing.remove(index)
        unjudged += isinstance(outcome, Unjudged)
        yield index, outcome
    raise RetryableError("the stream was cut before its end")


def settle(future: "Future[Verdict]", outcome: Verdict | Exception) -> None:
    """Complete a future, unless somebody else did or it was cancelled."""
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass
