"""A judge as a process of its own; its judge does as each completion says.

``kill`` kills the process. ``raise`` raises. ``wait`` counts in ``tests:waiting`` and waits until
the key ``tests:go`` exists. Any other completion is accepted at once.
"""

import asyncio
import os
import signal
import sys

from redis import Redis

from services.judge.jobs import SampleJudge
from services.judge.settings import JudgeSettings
from services.judge.worker import JudgeProcess
from shared.schemas import Generation, Verdict
from tests.shared.ledgers import verdict

WAITING, GO = "tests:waiting", "tests:go"


def main() -> None:
    url, name, concurrency, lease_ttl, drain = sys.argv[1:]
    redis = Redis.from_url(url)

    async def judge(
        _self: SampleJudge, _run: str, generation: Generation, *_: object
    ) -> tuple[Verdict, None]:
        await obey(generation.completion)
        return verdict(generation), None

    async def obey(completion: str) -> None:
        if completion == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
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
        lease_ttl=int(lease_ttl),
        drain_seconds=float(drain),
    )
    asyncio.run(JudgeProcess(redis, settings, name).serve_until_signal())


if __name__ == "__main__":
    main()
