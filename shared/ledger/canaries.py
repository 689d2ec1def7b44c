"""Canary rounds of a run in Redis: jobs in the same queue, with a ledger of their own.

A round is one job, whose sample names the sandbox, the profile and the number of the round. Its
verdict is on the sandbox; the report tells more. Nothing of it is in the run's own keys.
"""

import json
import secrets
import time
from typing import Self, cast

from pydantic import ValidationError
from redis import Redis
from redis.exceptions import WatchError

from shared.canaries.record import CanaryRecord, CanaryReport
from shared.ledger import keys
from shared.ledger.ledger import Ledger
from shared.ledger.packing import pack
from shared.schemas import Generation, SampleId, sha256

_MOST_ROUNDS = 10**9
# Seconds between the clocks of two judges.
_CLOCKS_DIFFER = 3600.0


class CanaryLedger:
    """Rounds of one run: sending, redelivery, reports.

    Args:
        redis: The ledger's server.
        run: The run's id.
    """

    def __init__(self, redis: Redis, run: str) -> None:
        self._redis = redis
        self._run = keys.canary_run(run)
        self._keys = keys.RunKeys(self._run)
        self._rounds = Ledger(redis, self._run)

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """The canaries of a ledger's run."""
        return cls(ledger.redis, ledger.run)

    def send(self, sandbox: str, profile: str, config: str, *, every: float) -> bool:
        """Enqueue the next round for a sandbox, at the head of the queue, if it is due.

        Args:
            sandbox: The sandbox's URL.
            profile: Name of the profile.
            config: The run's config as JSON.
            every: Seconds between two rounds.

        Returns:
            Whether a round was sent.
        """
        field = json.dumps([sandbox, profile])
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.watch(self._keys.sent)  # type: ignore[no-untyped-call]
            stored = cast(bytes | None, pipe.hget(self._keys.sent, field))
            number, last = _latest(stored)
            if time.time() - last < every:
                return False
            seed = secrets.token_hex(16)
            sample = SampleId(sandbox, profile, number + 1)
            pipe.multi()
            pipe.hset(self._keys.sent, field, json.dumps([number + 1, time.time()]))
            pipe.hset(self._keys.meta, "config", config)
            generation = _generation(sample, seed)
            pipe.hset(self._keys.completions, sample.key, pack(generation.model_dump_json()))
            pipe.hset(self._keys.hashes, sample.key, generation.completion_sha256)
            queue = self._rounds.queue
            queue.put(pipe, self._run, sample, generation.completion_sha256, first=True)
            try:
                pipe.execute()
            except WatchError:  # another judge sent one at this moment
                return False
        return True

    def outstanding(self) -> int:
        """Number of rounds that were sent and have no verdict yet."""
        return len(self._rounds.completed().keys() - self._rounds.judged())

    def requeue_lost(self, suspects: set[SampleId], max_deliveries: int) -> set[SampleId]:
        """Deliver lost jobs again, as :meth:`Ledger.requeue_lost`."""
        return self._rounds.requeue_lost(suspects, max_deliveries)

    def forget(self, *, keep: int) -> None:
        """Delete all judged rounds but the latest ``keep``, for a session without an end."""
        judged = sorted(self._rounds.judged(), key=lambda sample: sample.sample_index)
        names = [sample.key for sample in judged[: max(0, len(judged) - keep)]]
        if not names:
            return
        pipe = self._redis.pipeline(transaction=True)
        of_rounds = (self._keys.completions, self._keys.hashes, self._keys.verdicts)
        for key in (*of_rounds, self._keys.deliveries, self._keys.reports):
            pipe.hdel(key, *names)
        pipe.xtrim(self._keys.events, maxlen=keep)
        pipe.execute()

    def record(self) -> CanaryRecord:
        """Sum up the reports; a report of another version is skipped."""
        found = []
        for stored in cast(list[bytes], self._redis.hvals(self._keys.reports)):
            try:
                found.append(CanaryReport.model_validate_json(stored))
            except ValidationError:
                continue
        return CanaryRecord.of(found, self._rounds.completed_count() - len(found))


def _latest(stored: bytes | None) -> tuple[int, float]:
    """Number and time of the latest round; anything else than this class wrote is no round."""
    try:
        number, last = json.loads(stored or b"")
    except (ValueError, TypeError, RecursionError):
        return -1, 0.0
    if type(number) is not int or not 0 <= number < _MOST_ROUNDS:
        return -1, 0.0
    is_time = type(last) in (int, float) and 0 <= last <= time.time() + _CLOCKS_DIFFER
    return number, last if is_time else 0.0


def _generation(sample: SampleId, seed: str) -> Generation:
    return Generation(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        completion=seed,
        completion_sha256=sha256(seed),
    )
