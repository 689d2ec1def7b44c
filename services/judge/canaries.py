"""Canaries: fixed programs whose verdicts show whether a sandbox judges as it must.

There is one set per method and kind of tests in ``canaries.yaml``, judged by the code that judges
samples. Limits of time and output are scaled down, so that a set takes about a second. The memory
limit is the run's own, and hardly a page of it is touched.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from itertools import product
from typing import Annotated

import yaml
from pydantic import BeforeValidator, TypeAdapter
from redis.exceptions import RedisError

from services.judge.calls import Task
from services.judge.judging import judge
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.verdict import CaseOutcome, last_line
from shared.canaries import CanaryFinding, CanaryReport
from shared.config import Config, JudgeConfig
from shared.errors import ConfigError
from shared.harness.languages import PROGRAMS
from shared.ledger import keys
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.runs import PLANNED
from shared.schemas import Problem, StdioTests
from shared.service.logs import get_logger
from shared.statuses import CaseCode, FailureKind
from shared.text import shorten_end

log = get_logger(__name__)

_OUTPUT_MIB = 1
# Limits of canaries that try other limits: a run's own may be too small for any program.
_SECONDS, _MEMORY, _PROCESSES = 10.0, 512, 16
# Address space of an interpreter before it does anything, in MiB, generously. More than the second
# figure some machines refuse to any program.
_INTERPRETER, _MOST_SPACE = 160, 2048
# CPU seconds after which a program was certainly not stopped at its limit.
_MOST_CPU = 2.4
_SHOWN = 120
_Code = Annotated[CaseCode, BeforeValidator(lambda name: CaseCode[name.upper()])]
# A line of output.
_LINE = "x" * 63 + "\n"
# Attempts to judge a canary with a wrong time-out, of which load may be the cause.
_ATTEMPTS = 3
# A session that ends within these seconds has only the first round.
_SHORT = 10.0
# Seconds between two rounds of a session without an end.
_EVERY = 600


@dataclass(frozen=True, slots=True)
class CanaryProfile:
    """The judge's settings that decide which canaries a sample's sandbox gets."""

    method: str
    language: str
    functions: bool

    @classmethod
    def of(cls, settings: JudgeConfig, problem: Problem) -> "CanaryProfile":
        """The profile of a problem's samples, under the settings for its data set."""
        if isinstance(problem.tests, StdioTests):
            return cls(settings.method, settings.language, False)
        # Functions are judged in the same way by all methods but one.
        return cls("submit" if settings.method == "submit" else "batch", "python", True)

    def __str__(self) -> str:
        return f"{self.method} {self.language} {'functions' if self.functions else 'programs'}"

    @property
    def strict(self) -> bool:
        """Whether the method has CPU limits, exact checkers, details and a limit of output."""
        return self.method == "batch"


@dataclass(frozen=True, slots=True)
class CanaryCase:
    """A case of a canary, and the outcome that it must have; see ``canaries.yaml``."""

    fault: str
    stdin: str = ""
    output: str = "done\n"
    lines: int = 0
    repeat: int = 1
    code: Annotated[CaseCode, BeforeValidator(lambda name: CaseCode[name.upper()])] = (
        CaseCode.PASSED
    )
    detail: str | None = None

    def finding(self, outcome: CaseOutcome) -> str | None:
        """The fault, and how an outcome differs from the required one; None if it does not."""
        last = shorten_end(last_line(outcome.stderr), _SHOWN)
        shown = f"{outcome.code.name.lower()}, {outcome.detail or 'no detail'}: {last}"
        if outcome.code is not self.code:
            return f"{self.fault} ({shown} instead of {self.code.name.lower()})"
        if self.detail is not None and outcome.detail != self.detail:
            return f"{self.fault} ({shown} instead of {self.detail})"
        if self.code is CaseCode.TIMEOUT and (outcome.cpu_time or 0.0) > _MOST_CPU:
            return f"{self.fault} ({outcome.cpu_time:.1f} s of CPU time were used)"
        return None


@dataclass(frozen=True, slots=True)
class Canary:
    """A program, the required outcomes, and its limits in seconds and MiB.

    Without a limit it has the run's, and at least one that is enough for any canary. ``tests`` are
    None for a program that reads the inputs of its cases.
    """

    name: str
    code: str
    cases: Sequence[CanaryCase]
    strict_cases: Sequence[CanaryCase] = ()
    tests: Mapping[str, object] | None = None
    seconds: float | None = None
    strict_seconds: float | None = None
    memory: int | None = None
    language: str = "python"

    def findings(self, outcomes: Sequence[CaseOutcome]) -> list[str]:
        """Describe how the outcomes differ from the required ones; empty if they do not."""
        if len(outcomes) != len(self.cases):
            return [f"{self.cases[0].fault} ({len(outcomes)} of {len(self.cases)} cases ran)"]
        texts = map(CanaryCase.finding, self.cases, outcomes)
        return list(dict.fromkeys(filter(None, texts)))

    def task(self, config: Config, method: str, client: SandboxClient) -> Task:
        """Return the canary as a completion under a run's config, with its own limits."""
        judge: dict[str, object] = {
            "method": method,
            "language": self.language,
            "checker": None,
            "datasets": {},
            # A second run with wider limits would hide a limit that is too narrow.
            "confirm_timeouts": False,
            "max_output_mb": _OUTPUT_MIB,
            "max_processes": max(_PROCESSES, config.judge.max_processes),
        }
        limits = {
            "timeout": self.seconds or max(_SECONDS, config.sandbox.timeout),
            "memory_limit_mb": self.memory or max(_MEMORY, config.sandbox.memory_limit_mb),
        }
        tests = self.tests or {
            "checker": "exact",  # which methods with a rule of their own ignore
            "inputs": [case.stdin * case.repeat for case in self.cases],
            "outputs": [_LINE * case.lines or case.output for case in self.cases],
        }
        text = json.dumps(tests)
        return Task(
            Problem(dataset="canaries", problem_id=self.name, prompt="", ground_truth=text),
            f"```{self.language}\n{self.code}```\n",
            config.judge.model_copy(update=judge),
            config.sandbox.model_copy(update=limits),
            client,
        )

    def under(self, profile: CanaryProfile, memory: int) -> "Canary":
        """Return the canary of a profile that tries a memory limit, in MiB."""
        cases = [*self.cases, *(self.strict_cases if profile.strict else ())]
        below = min(_MOST_SPACE, int((memory - _INTERPRETER) * 0.8))
        if below <= 0:
            cases = [case for case in cases if "{below}" not in case.stdin]
        if profile.method == "submit":  # SandboxFusion's data-set API limits no memory
            cases = [case for case in cases if "space" not in case.stdin]
        space = {"limit": memory, "below": below, "above": memory + memory // 10 + 64}
        cases = [
            replace(
                case,
                fault=case.fault.format(**space),
                stdin=case.stdin.format(**space),
                detail=case.detail if profile.strict else None,
            )
            for case in cases
        ]
        seconds = self.strict_seconds if profile.strict else self.seconds
        return replace(self, cases=cases, seconds=seconds, memory=memory)


_SETS = TypeAdapter(dict[str, list[Canary]]).validate_python(
    yaml.safe_load(resources.files(__package__).joinpath("canaries.yaml").read_text("utf-8"))
)


def canaries(profile: CanaryProfile, config: Config, *, limits: bool = True) -> list[Canary]:
    """The canaries of a profile under a run's limits.

    Python programs try the limits of other languages and of functions, unless ``limits`` is false.
    """
    together, time_limit = _SETS["limits"]
    tried = [together.under(profile, config.sandbox.memory_limit_mb)]
    if not profile.strict:
        tried.append(time_limit)
    if profile.functions:
        of_function, mistaken = _SETS["functions"]
        return [of_function, *(tried if limits and profile.strict else ()), mistaken]
    if profile.language != "python":
        right = [canary for canary in _SETS["languages"] if canary.language == profile.language]
        return [*right, *(tried if limits else ())]
    first, wrong, last = _SETS["programs"]
    if profile.strict:
        first = replace(first, cases=[*first.cases, *first.strict_cases])
    [failed] = wrong.cases
    cases = [replace(case, fault=failed.fault, code=failed.code) for case in first.cases]
    return [first, replace(wrong, cases=cases), *tried, last]


# Judging of a set


async def judge_canaries(
    profile: CanaryProfile, config: Config, client: SandboxClient, url: str, *, limits: bool = True
) -> CanaryReport:
    """Judge the canaries of a profile on the client's sandbox, by the code that judges samples.

    The limits are scaled from those of the run's config. With ``limits`` those for functions and
    languages besides Python are tried, too. ``url`` is the sandbox's name in the report.
    """
    first, *rest = canaries(profile, config, limits=limits)
    findings: dict[str, list[CanaryFinding]] = {"wrong": [], "unjudged": [], "unable": []}

    async def send(canary: Canary) -> None:
        kind, texts = await _judged(canary, canary.task(config, profile.method, client))
        findings[kind] += [CanaryFinding(canary=canary.name, text=text) for text in texts]
        if texts:
            event = "canary judged wrongly" if kind == "wrong" else "canary not judged"
            log.error(event, canary=canary.name, sandbox=url, findings=texts)

    began, at = time.monotonic(), time.time()
    await send(first)
    environment = None
    if findings["unjudged"]:
        text = "not sent, because the sandbox did not judge the first one"
        findings["unjudged"] += [CanaryFinding(canary=other.name, text=text) for other in rest]
    else:
        environment, *_ = await asyncio.gather(client.environment(), *map(send, rest[:-1]))
        await asyncio.gather(*map(send, rest[-1:]))
    return CanaryReport(
        sandbox=url,
        profile=str(profile),
        at=at,
        seconds=time.monotonic() - began,
        sent=1 + len(rest),
        environment=environment,
        **findings,
    )


async def _judged(canary: Canary, task: Task) -> tuple[str, list[str]]:
    """Judge a canary, again after a wrong time-out; return the kind of findings, and them."""
    for _ in range(_ATTEMPTS):
        try:
            judgement = await judge(task)
        except SandboxUnavailableError as error:
            no_compiler = error.failures[-1].kind == FailureKind.COMPILER
            return "unable" if no_compiler else "unjudged", [str(error)]
        except ConfigError as error:
            return "unable", [str(error)]
        pairs = zip(canary.cases, judgement.cases, strict=False)
        if not any(outcome.code is CaseCode.TIMEOUT is not case.code for case, outcome in pairs):
            break
    if any(case.code is CaseCode.API_ERROR for case in judgement.cases):
        return "unjudged", ["no usable result"]
    return "wrong", canary.findings(judgement.cases)


# Rounds of a run


class CanaryRounds:
    """Starts the rounds of a process, beside the first and the last samples of a session.

    Redis decides which process judges a round: the one that stores the claim. ``on_report`` is
    called with the report on each round.
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

        A sample of the profile was judged. The run ends when it has ``ending`` samples without a
        verdict.
        """
        began, now = self._begun.get((run, profile)), time.monotonic()
        if profile.language not in PROGRAMS or (began and now - began < _SHORT):
            return
        self._begun.setdefault((run, profile), now)
        run_keys, profiles = keys.RunKeys(run), [profile]
        try:
            [planned, session], judged = await self._commands.send(
                [("HMGET", run_keys.meta, PLANNED, "sessions"), ("HLEN", run_keys.verdicts)]
            )
            name = f"first {int(session or 1)}"
            if began is not None:
                if planned is not None and int(planned) - judged > ending:
                    return
                # A trainer's session has no end.
                name = f"last {int(session or 1)}" if planned else str(int(time.time() // _EVERY))
                # The last samples may all be of one profile.
                profiles = [other for begun, other in self._begun if begun == run]
            for due, url in product(profiles, client.pool.urls):
                claim = run_keys.canaries, f"{url} {due} {name}"
                [claimed] = await self._commands.send([("HSETNX", *claim, time.time())])
                if claimed:
                    round_ = partial(judge_canaries, due, config, client.pinned(url), url)
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

    async def _report(
        self, claim: tuple[str, str], round_: Callable[[], Awaitable[CanaryReport]]
    ) -> None:
        """Replace the claim by the report, unless the run was deleted meanwhile."""
        try:
            report = await round_()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                log.exception("canaries failed", round=claim[1])
            with suppress(RedisError):
                await self._commands.send([("HDEL", *claim)])
            raise
        self._on_report(report)
        try:
            [claimed] = await self._commands.send([("HEXISTS", *claim)])
            if claimed:
                await self._commands.send([("HSET", *claim, report.model_dump_json())])
        except RedisError as error:
            log.warning("canaries not recorded", reason=str(error))
