"""Upkeep of a reward session: redelivery of lost jobs, and removal of what nobody needs.

One replica does it at a time; it holds the session's lock.
"""

import asyncio
import time
import uuid

from redis import Redis
from redis.exceptions import RedisError

from shared.ledger import CanaryLedger, Ledger
from shared.ledger.rewards import AT_ONCE, RewardLedger
from shared.schemas import SampleId
from shared.service.logs import get_logger

log = get_logger(__name__)

_LOCK_TTL = 15.0
_TIDY_EVERY = 30.0
# Rounds of canaries whose reports are kept.
_ROUNDS_KEPT = 100


class Janitor:
    """Keeps a session in order, a round after ``every`` seconds.

    ``redis`` is a client without retries, so that an outage does not hold a thread.
    """

    def __init__(self, rewards: RewardLedger, redis: Redis, *, every: float) -> None:
        self._rewards = rewards
        self._ledger = Ledger(redis, rewards.run)
        self._canaries = CanaryLedger(self._ledger.redis, self._ledger.run)
        self._every = every
        self._holder = uuid.uuid4().hex
        self._suspects: set[SampleId] = set()
        self._unsettled: set[str] = set()
        self._tidied = -_TIDY_EVERY

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                if await asyncio.to_thread(self._ledger.lock, self._holder, _LOCK_TTL):
                    await self._round()
                else:  # another replica does it; what is suspect now will be old by our next turn
                    self._suspects, self._unsettled = set(), set()
            except RedisError as error:
                log.warning("upkeep delayed, retrying", reason=str(error))
            await asyncio.sleep(self._every)

    def distrust(self) -> list[str]:
        """What sandboxes judged wrongly in the latest rounds of canaries, a line each; blocks."""
        return self._canaries.record().distrust

    def leave(self) -> None:
        """Let another replica take over; blocks."""
        try:
            self._ledger.unlock(self._holder)
        except RedisError:
            return  # the lock expires

    async def _round(self) -> None:
        self._suspects = await asyncio.to_thread(self._ledger.requeue_lost, self._suspects)
        await self._settle_left()
        if time.monotonic() - self._tidied >= _TIDY_EVERY:
            self._tidied = time.monotonic()
            await self._rewards.tidy()
            await asyncio.to_thread(self._canaries.forget, keep=_ROUNDS_KEPT)
            if findings := await asyncio.to_thread(self.distrust):
                log.error("canaries judged wrongly: scores cannot be trusted", findings=findings)

    async def _settle_left(self) -> None:
        """Settle verdicts that no replica waited for."""
        unsettled = {sample.key for sample in await asyncio.to_thread(self._ledger.judged)}
        left = sorted(unsettled & self._unsettled)
        for start in range(0, len(left), AT_ONCE):  # thousands, if no replica was there
            chunk = left[start : start + AT_ONCE]
            await self._rewards.settle(await self._rewards.verdicts(chunk))
        self._unsettled = unsettled
