"""A judge as a process of its own; its judge does as each completion says.

``kill`` kills the process. ``raise`` raises. ``wait`` counts in ``tests:waiting`` and waits until
the key ``tests:go`` exists. ``hold`` waits until it is cancelled, and then asks Redis once more.
Any other completion is accepted at once.
"""

import asyncio
import os
import signal
import sys

from services.judge.jobs import JudgeSettings, SampleJudge
from services.judge.worker import JudgeProcess
from shared.ledger import connect
from shared.schemas import Generation, Verdict
from tests.shared.ledgers import verdict

WAITING, GO = "tests:waiting", "tests:go"


def main() -> None:
    url, name, concurrency, lease_ttl, drain = sys.argv[1:]
    redis = connect(url)

    async def judge(
        self: SampleJudge, _run: str, generation: Generation, *_: object
    ) -> tuple[Verdict, None]:
        try:
            await obey(generation.completion)
        finally:
            if generation.completion == "hold":
                await self._commands.send([("PING",)])
        return verdict(generation), None

    async def obey(completion: str) -> None:
        if completion == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif completion == "raise":
            raise ZeroDivisionError("as the test wants it")
        elif completion == "hold":
            redis.incr(WAITING)
            await asyncio.Event().wait()
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
