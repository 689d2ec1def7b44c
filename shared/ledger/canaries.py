"""Canary rounds of a run in Redis: a hash of claims, each replaced by the report on its round."""

import time
from typing import Self, cast

from redis import Redis

from shared.canaries import CanaryRecord, CanaryReport
from shared.ledger import keys
from shared.ledger.ledger import Ledger

CLAIM_SECONDS = 60.0
"""Seconds after which a claim without a report is lost: its judge was killed."""


class CanaryLedger:
    """Rounds of one run. A judge claims a round with the Unix time, and replaces the claim by its
    report.
    """

    def __init__(self, redis: Redis, run: str) -> None:
        self._redis = redis
        self._key = keys.RunKeys(run).canaries

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """The canaries of a ledger's run."""
        return cls(ledger.redis, ledger.run)

    def outstanding(self) -> int:
        """Number of rounds that judges are at work on."""
        _, claims = self._rounds()
        return sum(time.time() - CLAIM_SECONDS < claimed for claimed in claims)

    def record(self) -> CanaryRecord:
        """Sum up the reports."""
        reports, claims = self._rounds()
        return CanaryRecord.of(list(reports.values()), len(claims))

    def forget(self, *, keep: int) -> None:
        """Delete all reports but the latest ``keep``, for a session without an end."""
        reports, _ = self._rounds()
        latest_last = sorted(reports, key=lambda field: reports[field].at)
        if old := latest_last[: max(0, len(reports) - keep)]:
            self._redis.hdel(self._key, *old)

    def _rounds(self) -> tuple[dict[bytes, CanaryReport], list[float]]:
        """Reports by field, and the times of claims without a report."""
        reports, claims = {}, []
        for field, stored in cast(dict[bytes, bytes], self._redis.hgetall(self._key)).items():
            if stored.startswith(b"{"):
                reports[field] = CanaryReport.model_validate_json(stored)
            else:
                claims.append(float(stored))
        return reports, claims
