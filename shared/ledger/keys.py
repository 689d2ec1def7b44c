"""The names of all Redis keys."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "plumbline"
RUNS = f"{PREFIX}:runs"
JUDGE_QUEUE = "judge"
JUDGE_FUNCTION = "services.judge.jobs.judge_sample"


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run.

    ``meta`` is a hash; ``problems``, ``completions``, ``hashes`` and ``verdicts`` are hashes by
    problem or sample key; ``events`` is the stream of verdicts.
    """

    run: str

    @property
    def _base(self) -> str:
        return f"{PREFIX}:run:{self.run}"

    @property
    def meta(self) -> str:
        return f"{self._base}:meta"

    @property
    def problems(self) -> str:
        return f"{self._base}:problems"

    @property
    def completions(self) -> str:
        return f"{self._base}:completions"

    @property
    def hashes(self) -> str:
        return f"{self._base}:hashes"

    @property
    def verdicts(self) -> str:
        return f"{self._base}:verdicts"

    @property
    def events(self) -> str:
        return f"{self._base}:events"

    @property
    def deliveries(self) -> str:
        return f"{self._base}:deliveries"

    @property
    def lock(self) -> str:
        return f"{self._base}:lock"

    @property
    def all(self) -> tuple[str, ...]:
        return (
            self.meta,
            self.problems,
            self.completions,
            self.hashes,
            self.verdicts,
            self.events,
            self.deliveries,
        )


def lease(job: str) -> str:
    """Held by the worker that judges ``job``; expires with it."""
    return f"{PREFIX}:lease:{job}"


@dataclass(frozen=True, slots=True)
class PermitKeys:
    """The keys by which a pool of sandboxes is shared out.

    ``queue`` and ``heard`` are sorted sets of waiters, ``wishes`` a hash by waiter, ``clock`` a
    hash. Each sandbox has ``held``, the sorted set of its permits, and ``place``, a hash. A waiter
    is woken through the list ``wake``.
    """

    pool: str

    @property
    def _base(self) -> str:
        return f"{PREFIX}:permits:{self.pool}"

    @property
    def queue(self) -> str:
        return f"{self._base}:queue"

    @property
    def wishes(self) -> str:
        return f"{self._base}:wishes"

    @property
    def heard(self) -> str:
        return f"{self._base}:heard"

    @property
    def clock(self) -> str:
        return f"{self._base}:clock"

    def held(self, url: str) -> str:
        return f"{self._base}:held:{url}"

    def place(self, url: str) -> str:
        return f"{self._base}:place:{url}"

    def wake(self, waiter: str) -> str:
        return f"{self._base}:wake:{waiter}"


def pool(urls: Iterable[str]) -> str:
    """The name of the pool of ``urls``: the same in every order."""
    return hashlib.sha256("\n".join(sorted(urls)).encode()).hexdigest()[:16]
