"""The reward service's parts, put together, and the identity of its session."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from pydantic import JsonValue
from redis import Redis
from redis.exceptions import RedisError

from services.reward.janitor import Janitor
from services.reward.metrics import RewardMetrics
from services.reward.pending import PendingAnswers
from services.reward.problems import ProblemStore
from services.reward.programs import Programs, sandbox_client
from services.reward.reward_log import RewardLog
from services.reward.scorer import Scorer
from services.reward.settings import RewardSettings
from shared.config import Config, load_config
from shared.ledger import connect_async, fail_fast, keys
from shared.ledger.connection import claim_ledger
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.rewards import RewardLedger
from shared.service.logs import get_logger
from shared.service.processes import cancel_and_wait
from shared.verl_keys import notices
from shared.versions import release

_log = get_logger(__name__)
_SECTIONS = ("judge.", "sandbox.")


@dataclass(frozen=True)
class RewardSession:
    """What verdicts depend on beside problem and completion: protocol, release and environment.

    Replicas of which all three are equal share a session. The number of the verdict rules is a part
    of the protocol. A change of any makes another session, so no answer outlives what it was judged
    by. ``environment``: fingerprint of what the sandboxes' programs run on, as far as it is known.
    """

    config: Config
    environment: str = ""

    @cached_property
    def protocol(self) -> dict[str, JsonValue]:
        """Leaves of the protocol that verdicts depend on, by path."""
        leaves = self.config.protocol().leaves
        return {path: value for path, value in leaves.items() if path.startswith(_SECTIONS)}

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of protocol, release and environment."""
        content = [self.protocol, release(), self.environment]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def run(self) -> str:
        """The id under which its samples are judged."""
        return f"{keys.REWARDS}{self.fingerprint[:16]}"

    @cached_property
    def document(self) -> str:
        """The config for judges, as JSON."""
        return self.config.for_services().model_dump_json()


@dataclass
class RewardService:
    """A reward service: what its routes need.

    Attributes:
        settings: Its settings.
        session: Its protocol and identity.
        problems: The problems that it knows.
        metrics: Its metrics.
        scorer: Scores completions.
        programs: Runs programs of tools.
        stop: Set when a task of the service has ended, which only a bug can cause.
    """

    settings: RewardSettings
    session: RewardSession
    problems: ProblemStore
    metrics: RewardMetrics
    scorer: Scorer
    programs: Programs
    stop: asyncio.Event
    _pending: PendingAnswers
    _janitor: Janitor

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
            sandbox = await opened.enter_async_context(sandbox_client(config, settings, commands))
            ledger = RewardLedger(waiting, commands, redis, session.run, remember=settings.remember)
            await ledger.open(session.document)
            pending = PendingAnswers(ledger, problems, session.document)
            metrics = RewardMetrics()
            service = cls(
                settings,
                session,
                problems,
                metrics,
                Scorer(settings, problems, pending, metrics, log),
                Programs(config, sandbox),
                asyncio.Event(),
                pending,
                Janitor(ledger, upkeep, every=upkeep_every),
            )
            async with service._running():
                yield service

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        tasks = [*self._pending.start(), asyncio.create_task(self._janitor.run())]
        for task in tasks:
            task.add_done_callback(lambda _task: self.stop.set())
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await cancel_and_wait(*tasks)
            await asyncio.to_thread(self._janitor.leave)

    async def distrust(self) -> list[str] | None:
        """As :meth:`Janitor.distrust`; None while Redis is unavailable."""
        try:
            return await asyncio.to_thread(self._janitor.distrust)
        except RedisError:
            return None

    def details(self) -> Mapping[str, object]:
        """Further fields of ``/readyz``."""
        return {"session": self.session.run, "pending": self._pending.count}
