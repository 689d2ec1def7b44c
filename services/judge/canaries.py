"""Canary rounds of a judge process, beside the first and the last samples of a session."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import product

from redis.exceptions import RedisError

from services.judge.canary_programs import OUTPUT_MIB, Canary, CanaryProfile, canaries
from services.judge.judging import Judge
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from shared.canaries import CanaryFinding, CanaryReport
from shared.config import Config
from shared.errors import ConfigError
from shared.ledger import keys
from shared.ledger.canaries import CLAIM_SECONDS
from shared.ledger.ledger import PLANNED
from shared.ledger.pipelined import PipelinedRedis
from shared.service.logs import get_logger
from shared.statuses import CaseCode, FailureKind

log = get_logger(__name__)

# Attempts to judge a canary with a wrong time-out.
_ATTEMPTS = 3
# Processes of a canary: a run's own limit may be too small for it.
_PROCESSES = 16
# A session that ends within these seconds has no other round than the first.
_SHORT = 10.0
# Seconds between two rounds of a session without an end.
_EVERY = 600
# Renewals of a claim, in a minute.
_RENEWALS = 24


class CanaryRounds:
    """Starts the rounds of a process; Redis decides which process judges a round.

    Args:
        commands: Connection to the ledger.
        on_report: Called with the report on each round.
    """

    def __init__(self, commands: PipelinedRedis, on_report: Callable[[CanaryReport], None]) -> None:
        self._commands = commands
        self._on_report = on_report
        self._begun: dict[tuple[str, CanaryProfile], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, run: str, profile: CanaryProfile, config: Config, client: SandboxClient, ending: int
    ) -> None:
        """Start the round that is due on each sandbox; a failure of Redis only prevents it.

        Args:
            run: The run's id.
            profile: The profile of a sample of the run that was judged.
            config: The run's config, from which the limits are scaled.
            client: Client of the run's sandboxes.
            ending: The run ends when it has so many samples without a verdict.
        """
        began = self._begun.get((run, profile))
        if not profile.supported or (began is not None and time.monotonic() - began < _SHORT):
            return
        self._begun.setdefault((run, profile), time.monotonic())
        try:
            name = await self._due(run, ending, first=began is None)
            if name is None:
                return
            # The last samples may all be of one profile.
            profiles = [profile] if began is None else [p for r, p in self._begun if r == run]
            for one, url in product(profiles, client.pool.urls):
                claim = keys.RunKeys(run).canaries, f"{url} {one} {name}"
                [claimed] = await self._commands.send([("HSETNX", *claim, time.time())])
                if claimed:
                    round_ = partial(judge_canaries, one, config, client.pinned(url), url)
                    task = asyncio.create_task(self._report(claim, round_))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except RedisError as error:
            log.warning("canaries not sent", run=run, reason=str(error))

    async def close(self) -> None:
        """Leave the rounds in progress to other processes."""
        await asyncio.sleep(0)  # a task that is cancelled before it begins keeps its claim
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _due(self, run: str, ending: int, *, first: bool) -> str | None:
        """Return the name of the round that is due now, or None."""
        run_keys = keys.RunKeys(run)
        [planned, session], judged = await self._commands.send(
            [("HMGET", run_keys.meta, PLANNED, "sessions"), ("HLEN", run_keys.verdicts)]
        )
        if first:
            return f"first {int(session or 1)}"
        if planned is None:  # a trainer's
            return str(int(time.time() // _EVERY))
        return f"last {int(session or 1)}" if int(planned) - judged <= ending else None

    async def _report(
        self, claim: tuple[str, str], round_: Callable[[], Awaitable[CanaryReport]]
    ) -> None:
        """Replace the claim by the report, unless the run was deleted meanwhile."""
        renewing = asyncio.create_task(self._renew(claim))
        try:
            report = await round_()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                log.exception("canaries failed", round=claim[1])
            with suppress(RedisError):
                await self._commands.send([("HDEL", *claim)])
            raise
        finally:
            renewing.cancel()
        self._on_report(report)
        # A judge that is stopped here may have stored it: the claim must not be deleted any more.
        try:
            [claimed] = await self._commands.send([("HEXISTS", *claim)])
            if claimed:
                await self._commands.send([("HSET", *claim, report.model_dump_json())])
        except RedisError as error:
            log.warning("canaries not recorded", reason=str(error))

    async def _renew(self, claim: tuple[str, str]) -> None:
        """Renew a claim for a minute, so that only that of a killed judge expires early."""
        for _ in range(_RENEWALS):
            await asyncio.sleep(CLAIM_SECONDS / 4)
            with suppress(RedisError):
                [claimed] = await self._commands.send([("HEXISTS", *claim)])
                if claimed:
                    await self._commands.send([("HSET", *claim, time.time())])


async def judge_canaries(
    profile: CanaryProfile, config: Config, client: SandboxClient, url: str, *, limits: bool = True
) -> CanaryReport:
    """Judge the canaries of a profile on one sandbox, by the code that judges samples.

    Args:
        profile: The profile.
        config: The run's config, from which the limits are scaled.
        client: Client of the sandbox.
        url: The sandbox's URL, for the report.
        limits: Try the limits for a language besides Python, too.
    """
    found = canaries(profile, config, limits=limits)
    others, last = found[1:-1], found[1:][-1:]
    round_ = _Round(profile, config, client)
    began, at = time.monotonic(), time.time()
    await round_.add(found[0])
    environment = None
    if round_.unjudged:
        text = "not sent, because the sandbox did not judge the first one"
        round_.unjudged += [CanaryFinding(canary=one.name, text=text) for one in found[1:]]
    else:
        environment = await client.environment()
        await asyncio.gather(*map(round_.add, others))
        await asyncio.gather(*map(round_.add, last))
    for finding in round_.wrong:
        log.error("canary judged wrongly", sandbox=url, finding=finding.text)
    return CanaryReport(
        sandbox=url,
        profile=str(profile),
        at=at,
        seconds=time.monotonic() - began,
        sent=len(found),
        environment=environment,
        wrong=round_.wrong,
        unjudged=round_.unjudged,
        unable=round_.unable,
    )


class _Round:
    """Judges canaries one by one, and keeps what differs from the required verdicts."""

    def __init__(self, profile: CanaryProfile, config: Config, client: SandboxClient) -> None:
        self.wrong: list[CanaryFinding] = []
        self.unjudged: list[CanaryFinding] = []
        self.unable: list[CanaryFinding] = []
        self._profile = profile
        self._config = config
        self._client = client

    async def add(self, canary: Canary) -> None:
        """Judge a canary, again after a wrong time-out, which load may cause."""
        judge = Judge(self._limits(canary), self._client)
        try:
            for _ in range(_ATTEMPTS):
                judgement = await judge.judge(canary.problem, canary.completion, Attempts())
                found = canary.findings(judgement.cases)
                if not canary.late(judgement.cases):
                    break
        except SandboxUnavailableError as error:
            unable = error.failures[-1].kind == FailureKind.COMPILER
            self._skip(self.unable if unable else self.unjudged, canary, str(error))
        except ConfigError as error:
            self._skip(self.unable, canary, str(error))
        else:
            if any(case.code is CaseCode.API_ERROR for case in judgement.cases):
                self._skip(self.unjudged, canary, "no usable result")
            else:
                self.wrong += [CanaryFinding(canary=canary.name, text=text) for text in found]

    def _skip(self, kind: list[CanaryFinding], canary: Canary, text: str) -> None:
        log.warning("canary not judged", canary=canary.name, reason=text)
        kind.append(CanaryFinding(canary=canary.name, text=text))

    def _limits(self, canary: Canary) -> Config:
        judge: dict[str, object] = {
            "method": self._profile.method,
            "language": canary.language,
            "checker": None,
            "datasets": {},
            # A second run with wider limits would hide a limit that is too narrow.
            "confirm_timeouts": False,
            "max_output_mb": OUTPUT_MIB,
            "max_processes": max(_PROCESSES, self._config.judge.max_processes),
        }
        sandbox = {"timeout": canary.timeout, "memory_limit_mb": canary.memory}
        return self._config.model_copy(
            update={
                "judge": self._config.judge.model_copy(update=judge),
                "sandbox": self._config.sandbox.model_copy(update=sandbox),
            }
        )
