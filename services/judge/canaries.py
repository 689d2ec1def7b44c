"""Canaries in the judge: rounds are sent when they are due, and judged as the run's samples are."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from services.judge.judging import Judge
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.verdict import Judgement
from shared.canaries.catalogue import canaries, manifest
from shared.canaries.expectation import Canary, Observed, ObservedCase, findings, only_late
from shared.canaries.profile import CanaryProfile
from shared.canaries.record import CanaryFinding, CanaryReport
from shared.config import Config
from shared.errors import ConfigError
from shared.ledger import CanaryLedger, connect
from shared.schemas import Generation, InfraFailure, Verdict
from shared.service.logs import get_logger
from shared.statuses import CaseCode, FailureKind, FinalStatus, JudgeMethod, aggregate_cases

log = get_logger(__name__)

# Seconds between two attempts of a process to send a round.
_ASK_EVERY = 30.0
# Attempts to judge a canary that is wrong for time-outs alone.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class CanaryRound:
    """A round to judge; ``seed`` chooses its names and numbers."""

    sandbox: str
    profile: CanaryProfile
    seed: str


async def judge_round(given: CanaryRound, config: Config, client: SandboxClient) -> CanaryReport:
    """Judge the canaries of a profile on one sandbox.

    The first one is judged before all others and the last one after them; those between compete
    with each other as samples do.

    Args:
        given: The round.
        config: The run's config, from which the limits are scaled.
        client: Client of the run's pool.
    """
    first, *others, last = found = canaries(given.profile, config, given.seed)
    report = _Report(given.profile, config, client.pinned(given.sandbox))
    began, at = time.monotonic(), time.time()
    await report.add(first)
    environment = None
    if report.unjudged:
        report.skip([*others, last])
    else:
        environment = await report.client.environment()
        await asyncio.gather(*map(report.add, others))
        await report.add(last)
    for finding in report.wrong:
        log.error("canary judged wrongly", sandbox=given.sandbox, finding=finding.text)
    return CanaryReport(
        sandbox=given.sandbox,
        profile=str(given.profile),
        manifest=manifest(),
        at=at,
        seconds=time.monotonic() - began,
        judge_seconds=report.seconds,
        sent=len(found),
        environment=environment,
        wrong=report.wrong,
        unjudged=report.unjudged,
        unable=report.unable,
    )


class _Report:
    """Judges canaries one by one with a client, and keeps what is not as it must be."""

    def __init__(self, profile: CanaryProfile, config: Config, client: SandboxClient) -> None:
        self.wrong: list[CanaryFinding] = []
        self.unjudged: list[CanaryFinding] = []
        self.unable: list[CanaryFinding] = []
        self.seconds = 0.0
        self._profile = profile
        self._config = config
        self.client = client

    async def add(self, canary: Canary) -> None:
        """Judge a canary, again if it was wrong for time-outs alone, which load may cause."""
        try:
            for attempt in range(_ATTEMPTS):
                seen = await self._judge(canary)
                found = findings(canary, seen)
                if not found or not only_late(canary, seen):
                    break
                log.info("canary late, trying again", canary=canary.name, attempt=attempt)
        except SandboxUnavailableError as error:
            self._fail(canary, error.failures[-1])
            return
        except ConfigError as error:
            self.unable.append(CanaryFinding(canary=canary.name, text=str(error)))
            return
        if seen.status is FinalStatus.API_ERROR:
            failure = InfraFailure(kind=FailureKind.SANDBOX, text="no usable result")
            self._fail(canary, failure)
            return
        self.wrong += [CanaryFinding(canary=canary.name, text=text) for text in found]

    async def _judge(self, canary: Canary) -> Observed:
        judge = Judge(_scaled(self._config, self._profile, canary), self.client)
        judgement = await judge.judge(canary.problem, canary.completion, Attempts())
        self.seconds += sum(case.duration for case in judgement.cases)
        return observed(judgement)

    def skip(self, rest: Sequence[Canary]) -> None:
        """Count canaries that were not sent as not judged."""
        text = "not sent, because the sandbox did not judge the first one"
        self.unjudged += [CanaryFinding(canary=canary.name, text=text) for canary in rest]

    def _fail(self, canary: Canary, failure: InfraFailure) -> None:
        finding = CanaryFinding(canary=canary.name, text=str(failure))
        unable = failure.kind == FailureKind.COMPILER
        (self.unable if unable else self.unjudged).append(finding)


class CanarySender:
    """Sends a round to each sandbox of a run, first when it is seen first, then when it is due.

    Redis decides what is due, so the judges of a run send one round together.

    Args:
        redis_url: The ledger's server.
        ask_every: Seconds between two questions to Redis, for each run, sandbox and profile.
    """

    def __init__(self, redis_url: str, *, ask_every: float = _ASK_EVERY) -> None:
        self._redis_url = redis_url
        self._ask_every = ask_every
        self._asked: dict[tuple[str, str, str], float] = {}
        self._redis: Redis | None = None
        self._lock = threading.Lock()

    async def send(
        self,
        run: str,
        sandboxes: Sequence[str],
        profile: CanaryProfile,
        document: str,
        every: float,
    ) -> None:
        """Send the rounds that are due; a failure of Redis only delays them.

        Args:
            run: The run's id.
            sandboxes: URLs of its sandboxes.
            profile: Profile of the sample at hand.
            document: The run's config as JSON.
            every: Seconds between two rounds on one sandbox.
        """
        now = time.monotonic()
        pause = min(self._ask_every, every)
        due = [
            url
            for url in sandboxes
            if now - self._asked.get((run, url, str(profile)), -pause) >= pause
        ]
        if not due or not profile.supported:
            return
        self._asked |= {(run, url, str(profile)): now for url in due}
        try:
            await asyncio.to_thread(self._send, run, due, str(profile), document, every)
        except RedisError as error:
            log.warning("canaries not sent, trying again later", reason=str(error))

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()

    def _send(
        self, run: str, sandboxes: Sequence[str], profile: str, document: str, every: float
    ) -> None:
        with self._lock:
            self._redis = self._redis or connect(self._redis_url)
            ledger = CanaryLedger(self._redis, run)
            for url in sandboxes:
                ledger.send(url, profile, document, every=every)


def verdict_on(report: CanaryReport, generation: Generation, worker: str) -> Verdict:
    """The verdict on the sandbox, whose cases are the canaries."""
    status = FinalStatus.SUCCESS if report.right else FinalStatus.API_ERROR
    texts = [finding.text for finding in (*report.wrong, *report.unjudged, *report.unable)]
    if report.wrong:
        status = FinalStatus.WRONG_ANSWER
    return Verdict(
        dataset=generation.dataset,
        problem_id=generation.problem_id,
        sample_index=generation.sample_index,
        completion_sha256=generation.completion_sha256,
        final_status=status,
        detail=texts[0] if texts else None,
        accepted=status is FinalStatus.SUCCESS,
        pass_ratio=report.right / report.sent if report.sent else 0.0,
        cases_passed=report.right,
        cases_total=report.sent,
        total_judge_time=report.judge_seconds,
        method=JudgeMethod.NONE,
        checker="none",
        worker=worker,
        judged_at=time.time(),
    )


def observed(judgement: Judgement) -> Observed:
    """Reduce a judgement to what canaries are compared by."""
    codes = [case.code for case in judgement.cases]
    cases = tuple(
        ObservedCase(case.code, case.detail, case.actual, case.stderr) for case in judgement.cases
    )
    status = judgement.status or aggregate_cases(codes)
    cpu = sum(case.cpu_time or 0.0 for case in judgement.cases)
    return Observed(FinalStatus.API_ERROR if CaseCode.API_ERROR in codes else status, cases, cpu)


def _scaled(config: Config, profile: CanaryProfile, canary: Canary) -> Config:
    limits = canary.limits
    judge = profile.settings(config.judge)
    return config.model_copy(
        update={
            "judge": judge.model_copy(
                update={"max_output_mb": limits.output_mb, "max_processes": limits.processes}
            ),
            "sandbox": config.sandbox.model_copy(
                update={"timeout": limits.timeout, "memory_limit_mb": limits.memory_mb}
            ),
        }
    )
