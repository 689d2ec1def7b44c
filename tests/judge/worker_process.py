"""A judge worker as a process of its own; its judge does as each completion says.

``kill`` kills the process; how many completions were being judged then is added to the list
``tests:together``. ``raise`` raises. ``wait`` counts in ``tests:waiting`` and waits until the key
``tests:go`` exists. ``pause`` takes a moment. Any other completion is accepted at once.
"""

import asyncio
import os
import signal
import sys

from redis import Redis

from services.judge.jobs import JudgedSample, SampleJudge
from services.judge.settings import JudgeSettings
from services.judge.worker import JudgeWorker
from shared.ledger.jobs import JobInput
from shared.schemas import Generation
from tests.shared.ledgers import verdict

TOGETHER, WAITING, GO = "tests:together", "tests:waiting", "tests:go"


def main() -> None:
    url, name, concurrency, lease_ttl, drain = sys.argv[1:]
    redis = Redis.from_url(url)
    in_hand: list[str] = []

    async def judge(_self: SampleJudge, _found: JobInput, generation: Generation) -> JudgedSample:
        in_hand.append(generation.problem_id)
        try:
            await obey(generation.completion)
        finally:
            in_hand.remove(generation.problem_id)
        return JudgedSample(verdict(generation))

    async def obey(completion: str) -> None:
        if completion == "kill":
            await asyncio.sleep(0.2)  # its neighbours are being judged
            redis.rpush(TOGETHER, len(in_hand))
            os.kill(os.getpid(), signal.SIGKILL)
        elif completion == "pause":
            await asyncio.sleep(0.5)
        elif completion == "raise":
            raise ZeroDivisionError("as the test wants it")
        elif completion == "wait":
            redis.incr(WAITING)
            while not redis.exists(GO):
                await asyncio.sleep(0.02)

    SampleJudge.judge = judge  # type: ignore[method-assign]
    settings = JudgeSettings(
        redis_url=url,
        concurrency=int(concurrency),
        lease_ttl=float(lease_ttl),
        drain_seconds=float(drain),
    )
    JudgeWorker(redis, settings, name).serve()


if __name__ == "__main__":
    main()
