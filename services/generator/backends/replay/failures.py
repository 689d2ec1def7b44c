"""Failures to order: which of them a request gets instead of its answer."""

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import ConfigError

FAILURES = {
    "ok": "no failure, the answer",
    "reset": "the connection is reset",
    "hang": "no answer ever",
    "abort": 'HTTP 200 with a cut text and finish_reason "abort"',
    "empty": "HTTP 200 with no choices",
    "garbage": "HTTP 200 with a body that is not JSON",
    "truncated": "a body that ends in the middle",
    "too_long": "HTTP 400 as vLLM answers a prompt that is too long",
}
"""The failures with a name; beside them any HTTP status from 400 to 599."""

_DEFAULT_RETRY_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """``name`` is a key of ``FAILURES`` or an HTTP status; ``retry_after`` is seconds."""

    name: str
    status: int | None = None
    retry_after: float | None = None


OK = Failure("ok")


def parse_failures(names: Sequence[str]) -> list[Failure]:
    """Read a list such as ``500``, ``429:0.1`` (with Retry-After), ``reset``.

    Raises:
        ConfigError: A name that is none.
    """
    return [_parse(name) for name in names]


def _parse(text: str) -> Failure:
    name, _, argument = text.partition(":")
    try:
        if name in FAILURES and not argument:
            return Failure(name)
        if not 400 <= int(name) <= 599:
            raise ValueError
        retry_after = float(argument) if argument else None
        if retry_after is not None and not 0 <= retry_after < float("inf"):
            raise ValueError
    except ValueError:
        known = ", ".join(FAILURES)
        raise ConfigError(
            f"PLUMBLINE_GENERATOR_REPLAY_FAILURES: unknown failure {text!r} (known: {known}, or an "
            "HTTP status from 400 to 599, with :<seconds> for Retry-After)"
        ) from None
    if name == "429" and retry_after is None:
        retry_after = _DEFAULT_RETRY_AFTER
    return Failure(name, int(name), retry_after)


class FailurePlan:
    """First the ordered failures, one a request; then errors by chance.

    The chance is a hash of the seed, the request's identity and how often it was seen: a run with
    the same seed meets the same errors in whatever order its requests arrive.
    """

    def __init__(self, failures: Sequence[Failure], *, error_rate: float, seed: int) -> None:
        self._ordered = deque(failures)
        self._error_rate = error_rate
        self._seed = seed
        self._seen: Counter[str] = Counter()

    def next(self, identity: str) -> Failure:
        self._seen[identity] += 1
        if self._ordered:
            return self._ordered.popleft()
        if _chance(f"{self._seed}|{identity}|{self._seen[identity]}") < self._error_rate:
            return Failure("500", 500)
        return OK


def _chance(text: str) -> float:
    """A number from 0 (inclusive) to 1 (exclusive), the same for the same text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    # 53 bits: what a float holds without rounding up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
