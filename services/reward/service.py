"""The reward service's parts, put together."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

from redis import Redis
from redis.exceptions import RedisError

from services.reward.janitor import Janitor
from services.reward.metrics import RewardMetrics
from services.reward.pending import PendingAnswers
from services.reward.problems import ProblemStore
from services.reward.programs import Programs, sandbox_client
from services.reward.reward_log import RewardLog
from services.reward.scorer import Scorer
from services.reward.session import RewardSession
from services.reward.settings import RewardSettings
from shared.config import Config, load_config
from shared.ledger import connect_async, fail_fast
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.rewards import RewardLedger
from shared.ledger.version import claim_ledger
from shared.service.logs import get_logger
from shared.service.tasks import cancel_and_wait
from shared.verl_translation import notices

_log = get_logger(__name__)


class RewardService:
    """A reward service: what its routes need.

    Attributes:
        settings: Its settings.
        session: Its protocol and identity.
        problems: The problems that it knows.
        metrics: Its metrics.
        scorer: Scores completions.
        programs: Runs programs of tools.
        commands: Connection to Redis, shared by all tasks.
        stop: Set when a task of the service has ended, which only a bug can cause.
    """

    def __init__(
        self,
        settings: RewardSettings,
        session: RewardSession,
        problems: ProblemStore,
        ledger: RewardLedger,
        commands: PipelinedRedis,
        janitor: Janitor,
        reward_log: RewardLog,
        programs: Programs,
    ) -> None:
        self.settings = settings
        self.session = session
        self.problems = problems
        self.metrics = RewardMetrics()
        self.commands = commands
        self.stop = asyncio.Event()
        self._pending = PendingAnswers(ledger, problems, session.document)
        self.scorer = Scorer(settings, problems, self._pending, self.metrics, reward_log)
        self._ledger = ledger
        self._janitor = janitor
        self.programs = programs

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        settings: RewardSettings,
        redis: Redis,
        *,
        config: Config | None = None,
        upkeep_every: float = 2.0,
    ) -> AsyncIterator[Self]:
        """Connect and run a service in the block.

        Args:
            settings: Its settings.
            redis: A client of the ledger's server, for jobs and the upkeep.
            config: Replaces the config that the settings name.
            upkeep_every: Seconds between two looks for lost jobs and unsettled verdicts.

        Raises:
            PlumblineError: Config or data cannot be used, or Redis is not reachable.
        """
        config = config or load_config(settings.config or None)
        for notice in notices(config.run.verl_keys):
            _log.warning(notice)
        session = RewardSession(config, settings.environment)
        async with AsyncExitStack() as opened:
            log = RewardLog(settings.samples_folder, session.run, every=settings.sample_every)
            opened.callback(log.close)
            problems = await asyncio.to_thread(
                ProblemStore, settings.data_paths, settings.certificates
            )
            opened.callback(problems.close)
            await asyncio.to_thread(claim_ledger, redis)
            waiting = await connect_async(settings.redis_url)
            opened.push_async_callback(waiting.aclose)
            shared = await connect_async(settings.redis_url)
            opened.push_async_callback(shared.aclose)
            upkeep = opened.enter_context(fail_fast(redis))
            commands = PipelinedRedis(shared)
            remember = settings.remember
            ledger = RewardLedger(waiting, commands, redis, session.run, remember=remember)
            janitor = Janitor(ledger, upkeep, every=upkeep_every)
            sandbox = await opened.enter_async_context(sandbox_client(config, settings, commands))
            programs = Programs(
                config,
                sandbox,
                max_pending=settings.max_runs,
                max_deadline=settings.max_deadline,
            )
            service = cls(settings, session, problems, ledger, commands, janitor, log, programs)
            async with service._running():
                yield service

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        await self._ledger.open(self.session.document)
        stop_warming = threading.Event()
        warming = asyncio.create_task(asyncio.to_thread(self.problems.warm, stop_warming))
        upkeep = asyncio.create_task(self._janitor.run())
        tasks = [*self._pending.start(), upkeep]
        for task in tasks:
            task.add_done_callback(lambda _task: self.stop.set())
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            stop_warming.set()
            await cancel_and_wait(*tasks)
            await asyncio.gather(warming, asyncio.to_thread(self._janitor.leave))

    async def distrust(self) -> list[str] | None:
        """As :meth:`Janitor.distrust`; None while Redis is unavailable."""
        try:
            return await asyncio.to_thread(self._janitor.distrust)
        except RedisError:
            return None

    def details(self) -> Mapping[str, object]:
        """Further fields of ``/readyz``."""
        return {"session": self.session.run, "pending": self._pending.count}
