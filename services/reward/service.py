"""The reward service's parts, put together, and the identity of its session."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self
from uuid import uuid4

from pydantic import JsonValue
from redis import Redis
from redis.exceptions import RedisError

from services.judge.sandbox import open_client
from services.reward.janitor import Janitor
from services.reward.metrics import RewardMetrics
from services.reward.pending import PendingAnswers
from services.reward.problems import ProblemStore
from services.reward.programs import Programs
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
from shared.text import split_urls
from shared.verl_keys import notices
from shared.versions import release

_log = get_logger(__name__)
_SECTIONS = ("judge.", "sandbox.")


@dataclass(frozen=True)
class RewardSession:
    """Protocol, release and environment, on which verdicts depend beside problem and completion.

    Replicas of which all three are equal share a session. A change of any makes another session, so
    no answer outlives what it was judged by. ``environment``: fingerprint of what the sandboxes'
    programs run on, as far as it is known.
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
    """The parts of a reward service; ``work`` follows the session, and ends first only by a bug."""

    session: RewardSession
    problems: ProblemStore
    metrics: RewardMetrics
    scorer: Scorer
    programs: Programs
    work: asyncio.Task[None]
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

        ``redis`` is for jobs and the upkeep, which looks for lost jobs and unsettled verdicts every
        ``upkeep_every`` seconds. ``config`` replaces the one that the settings name.

        Raises:
            PlumblineError: Config or data cannot be used, or Redis is not reachable.
        """
        config = config or load_config(settings.config or None)
        for notice in notices(config.run.verl_keys):
            _log.warning(notice)
        session = RewardSession(config, settings.environment)
        async with AsyncExitStack() as opened:
            log = RewardLog(settings.samples, session.run, every=settings.sample_every)
            opened.callback(log.close)
            paths = split_urls(settings.data)
            problems = await asyncio.to_thread(ProblemStore, paths, settings.certificates)
            opened.callback(problems.close)
            await asyncio.to_thread(claim_ledger, redis)
            waiting, shared = [
                await opened.enter_async_context(await connect_async(settings.redis_url))
                for _ in range(2)
            ]
            commands = PipelinedRedis(shared)
            name = f"reward-{uuid4().hex[:12]}"
            sandbox = open_client(config, settings, commands, name)
            await opened.enter_async_context(sandbox)
            ledger = RewardLedger(waiting, commands, redis, session.run, remember=settings.remember)
            await ledger.open(session.document)
            pending = PendingAnswers(ledger, problems, session.document)
            metrics = RewardMetrics()
            upkeep = opened.enter_context(fail_fast(redis))
            janitor = Janitor(ledger, upkeep, every=upkeep_every)
            opened.push_async_callback(asyncio.to_thread, janitor.leave)
            work = asyncio.create_task(pending.run(janitor.run()))
            opened.push_async_callback(cancel_and_wait, work)
            scorer = Scorer(settings, problems, pending, metrics, log)
            programs = Programs(config, sandbox)
            yield cls(session, problems, metrics, scorer, programs, work, pending, janitor)

    async def distrust(self) -> list[str] | None:
        """As :meth:`Janitor.distrust`; None while Redis is unavailable."""
        try:
            return await asyncio.to_thread(self._janitor.distrust)
        except RedisError:
            return None

    def details(self) -> Mapping[str, object]:
        """Further fields of ``/readyz``."""
        return {"session": self.session.run, "pending": self._pending.count}
