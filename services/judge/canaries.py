"""Canaries: fixed programs whose verdicts show whether a sandbox judges as it must.

There is one set per method and kind of tests, judged by the code that judges samples. Limits of
time and output are scaled down, so that a set takes about a second. The memory limit is the run's
own, and hardly a page of it is touched.
"""

import asyncio
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from redis.exceptions import RedisError

from services.judge.judging import Judge
from services.judge.programs import last_line
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.verdict import CaseOutcome
from shared.canaries import CanaryFinding, CanaryReport
from shared.config import Config, JudgeConfig
from shared.errors import ConfigError
from shared.harness.languages import LANGUAGES, PROGRAMS
from shared.ledger import keys
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.runs import PLANNED
from shared.schemas import Problem, StdioTests
from shared.service.logs import get_logger
from shared.statuses import CaseCode, FailureKind, VerdictDetail
from shared.text import shorten_end

log = get_logger(__name__)

_MIB = 1024 * 1024
_OUTPUT_MIB = 1
# Limits of canaries that try other limits: a run's own may be too small for any program.
_SECONDS, _MEMORY, _PROCESSES = 10.0, 512, 16
# Address space of an interpreter before it does anything, in MiB, generously. More than the second
# figure some machines refuse to any program.
_INTERPRETER, _MOST_SPACE = 160, 2048
# A program is killed at 1.25 times the CPU limit, so work for 0.76 of it shows a limit that is
# halved, or time that is counted twice.
_LIMIT, _BELOW, _ABOVE, _WAIT = 0.25, 0.19, 3.0, 0.35
# CPU seconds after which such a program was certainly not stopped at its limit.
_MOST_CPU = 2.4
# The same in wall-clock seconds, with a wide margin because load decides.
_WALL_LIMIT, _WALL_ABOVE = 0.5, 5.0
_SHOWN = 120
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
    """A case of a canary, and the outcome that it must have.

    Attributes:
        fault: What a sandbox does that judges the case otherwise; a clause without a full stop.
        detail: The outcome's detail; None for any.
    """

    fault: str
    stdin: str = ""
    output: str = "done\n"
    code: CaseCode = CaseCode.PASSED
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
    tests: Mapping[str, object] | None = None
    seconds: float | None = None
    memory: int | None = None
    language: str = "python"

    @property
    def problem(self) -> Problem:
        tests = self.tests or {
            "checker": "exact",  # which methods with a rule of their own ignore
            "inputs": [case.stdin for case in self.cases],
            "outputs": [case.output for case in self.cases],
        }
        text = json.dumps(tests)
        return Problem(dataset="canaries", problem_id=self.name, prompt="", ground_truth=text)

    def findings(self, outcomes: Sequence[CaseOutcome]) -> list[str]:
        """Describe how the outcomes differ from the required ones; empty if they do not."""
        if len(outcomes) != len(self.cases):
            return [f"{self.cases[0].fault} ({len(outcomes)} of {len(self.cases)} cases ran)"]
        texts = map(CanaryCase.finding, self.cases, outcomes)
        return list(dict.fromkeys(filter(None, texts)))

    def config(self, config: Config, method: str) -> Config:
        """Return a run's config with the canary's limits."""
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
        limits = config.sandbox
        sandbox = {
            "timeout": self.seconds or max(_SECONDS, limits.timeout),
            "memory_limit_mb": self.memory or max(_MEMORY, limits.memory_limit_mb),
        }
        return config.model_copy(
            update={
                "judge": config.judge.model_copy(update=judge),
                "sandbox": limits.model_copy(update=sandbox),
            }
        )


# The set of canaries


def canaries(profile: CanaryProfile, config: Config, *, limits: bool = True) -> list[Canary]:
    """The canaries of a profile under a run's limits.

    Python programs try the limits of other languages and of functions, unless ``limits`` is false.
    The first and the last canary of Python programs are the same program with other input. So
    results that are remembered by the program alone, and files that it left behind, come to light.
    """
    tried = _limits(profile, config.sandbox.memory_limit_mb)
    if profile.functions:
        right = [CanaryCase("a right function is not accepted")]
        fault = "a wrong function is not judged a wrong answer"
        wrong = [CanaryCase(fault, code=CaseCode.WRONG_ANSWER)]
        check = {"test": _CHECK, "entry_point": "total", "prompt": _PROMPT}
        assertion = {"test_list": ["assert total([2, 3])['sum'] == 6"]}
        functions = [
            Canary("right", _FUNCTION, right, check),
            Canary("wrong", _FUNCTION, wrong, assertion),
        ]
        return functions + (tried if limits and profile.strict else [])
    if profile.language in _COMPILED:
        title, code = LANGUAGES[profile.language].title, _COMPILED[profile.language]
        case = CanaryCase(f"a right program in {title} is not accepted", "5\n", "35\n")
        return [
            Canary(title, code, [case], language=profile.language),
            *(tried if limits else ()),
        ]
    fault = (
        "a right program in Python 3.10 with Unicode text is not accepted, or finds files that "
        "another program left"
    )
    right = [CanaryCase(fault, text, text) for text in ("\nžř漢🐍\n", "11\nb\n", "2 3 4\nc d\n")]
    again = [CanaryCase(fault, text, text) for text in ("12\nx\n", "3 4 5\ny z\n")]
    fault = "a right program with threads, processes and a shell is not accepted"
    right.append(CanaryCase(fault, "processes 6", "7 7 11"))
    right += _bytes() if profile.strict else ()
    fault = "a wrong output is not judged a wrong answer"
    wrong = [replace(case, fault=fault, code=CaseCode.WRONG_ANSWER) for case in right]
    return [
        Canary("right", _RIGHT, right),
        Canary("wrong", _WRONG, wrong),
        *tried,
        Canary("right again", _RIGHT, again),
    ]


def _bytes() -> list[CanaryCase]:
    fault = "input or output is not passed on byte by byte"
    texts = ("žluť 漢🐍\u2028\n", "a\r\nb\rc\r\n", "no newline", "d\n\n \t\n", "a\0b\n")
    long = "a line ž\n" * (3 * _MIB // 20)
    size, checksum = len(long.encode()), zlib.crc32(long.encode())
    fault_of_long = f"input is cut or changed: {size} bytes"
    cases = [CanaryCase(fault, text, text) for text in texts]
    return [*cases, CanaryCase(fault_of_long, long, f"{size} {checksum}")]


def _limits(profile: CanaryProfile, memory: int) -> list[Canary]:
    """Canaries below and above each limit; methods that are not strict have fewer limits."""
    failed, strict = CaseCode.RUNTIME_ERROR, profile.strict
    cases: list[CanaryCase] = []
    below = min(_MOST_SPACE, int((memory - _INTERPRETER) * 0.8))
    if profile.method != "submit":  # SandboxFusion's data-set API limits no memory
        if below > 0:
            fault = f"memory is refused: {below} MiB under a limit of {memory} MiB"
            cases.append(CanaryCase(fault, f"space {below * _MIB}\n"))
        above = memory + memory // 10 + 64
        fault = f"memory limit not enforced: {above} MiB allocated under a limit of {memory} MiB"
        refused = VerdictDetail.MEMORY_LIMIT if strict else None
        cases.append(CanaryCase(fault, f"space {above * _MIB}\n", code=failed, detail=refused))
    fault = "an exit code is lost: a right output with exit code 3 is not a runtime error"
    cases.append(CanaryCase(fault, "exit 3\n", code=failed))
    fault = "a signal is lost: the end of a program that SIGSEGV killed is another one"
    detail = "SIGSEGV" if strict else None
    cases.append(CanaryCase(fault, "signal 11\n", code=failed, detail=detail))
    if not strict:
        fault = f"time limit not enforced: {_WALL_ABOVE} s asleep under a limit of {_WALL_LIMIT} s"
        late = CanaryCase(fault, f"wait {_WALL_ABOVE}\n", code=CaseCode.TIMEOUT)
        return [
            Canary("limits", _LIMITS, cases, memory=memory),
            Canary("time limit", _LIMITS, [late], seconds=_WALL_LIMIT),
        ]
    limit, line = _OUTPUT_MIB * _MIB, "x" * 63 + "\n"
    less, more = limit - 4096, limit + 65536
    cases += [
        CanaryCase(
            f"output is cut or refused: {less} bytes under a limit of {limit}",
            f"print {less}\n",
            line * (less // 64),
        ),
        CanaryCase(
            f"output limit not enforced: {more} bytes under a limit of {limit}",
            f"print {more}\n",
            line * (more // 64),
            failed,
            VerdictDetail.OUTPUT_LIMIT,
        ),
        CanaryCase(
            f"waiting is counted as work: {_WAIT} s asleep under a limit of {_LIMIT} s",
            f"wait {_WAIT}\n",
        ),
        CanaryCase(
            f"time is miscounted: {_BELOW} s of work fails under a limit of {_LIMIT} s",
            f"work {_BELOW}\n",
        ),
        # The last one, because a run may allow a single time-out.
        CanaryCase(
            f"time limit not enforced: {_ABOVE} s of work under a limit of {_LIMIT} s",
            f"work {_ABOVE}\n",
            code=CaseCode.TIMEOUT,
        ),
    ]
    return [Canary("limits", _LIMITS, cases, seconds=_LIMIT, memory=memory)]


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

    async def judge(canary: Canary) -> None:
        kind, texts = await _judged(canary, Judge(canary.config(config, profile.method), client))
        findings[kind] += [CanaryFinding(canary=canary.name, text=text) for text in texts]
        if texts:
            event = "canary judged wrongly" if kind == "wrong" else "canary not judged"
            log.error(event, canary=canary.name, sandbox=url, findings=texts)

    began, at = time.monotonic(), time.time()
    await judge(first)
    environment = None
    if findings["unjudged"]:
        text = "not sent, because the sandbox did not judge the first one"
        findings["unjudged"] += [CanaryFinding(canary=other.name, text=text) for other in rest]
    else:
        environment = await client.environment()
        await asyncio.gather(*map(judge, rest[:-1]))
        await asyncio.gather(*map(judge, rest[-1:]))
    return CanaryReport(
        sandbox=url,
        profile=str(profile),
        at=at,
        seconds=time.monotonic() - began,
        sent=1 + len(rest),
        environment=environment,
        **findings,
    )


async def _judged(canary: Canary, judge: Judge) -> tuple[str, list[str]]:
    """Judge a canary, again after a wrong time-out; return the kind of findings, and them."""
    completion = f"```{canary.language}\n{canary.code}```\n"
    for _ in range(_ATTEMPTS):
        try:
            judgement = await judge.judge(canary.problem, completion, Attempts())
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
        began = self._begun.get((run, profile))
        if profile.language not in PROGRAMS or (began and time.monotonic() - began < _SHORT):
            return
        self._begun.setdefault((run, profile), time.monotonic())
        try:
            name = await self._due(run, ending, first=began is None)
            # The last samples may all be of one profile.
            profiles = [profile] if began is None else [p for r, p in self._begun if r == run]
            for canaries_of, url in product(profiles if name else (), client.pool.urls):
                claim = keys.RunKeys(run).canaries, f"{url} {canaries_of} {name}"
                [claimed] = await self._commands.send([("HSETNX", *claim, time.time())])
                if claimed:
                    round_ = partial(judge_canaries, canaries_of, config, client.pinned(url), url)
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


# Programs

# Needs Python 3.10 (``match``) and UTF-8, prints what it reads, byte by byte, and writes to both
# streams. If the input begins with a digit, it leaves files behind, which no other program may
# find.
_RIGHT = """\
import os, subprocess, sys, threading, zlib
text = sys.stdin.buffer.read()
print("working", file=sys.stderr, flush=True)
words = text.decode().split()
match words:
    case ["processes", number]:
        results = []
        thread = threading.Thread(target=lambda: results.append(int(number) + 1))
        thread.start()
        thread.join()
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        results.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        done = subprocess.run(["sh", "-c", "echo $((5 + 6))"], capture_output=True, text=True)
        print(*results, done.stdout.strip())
    case _ if len(text) > 9999:
        print(len(text), zlib.crc32(text))
    case _:
        sys.stdout.buffer.write(text)
for folder in ("/tmp", "/dev/shm", ".") if text[:1].isdigit() else ():
    place = os.path.join(folder, f"plumbline-canary-{len(words)}")
    if os.path.exists(place):
        print("found", folder)
    try:
        open(place, "w").close()
    except OSError:
        pass
"""

_WRONG = "print('wrong')\n"

# The input names the limit to try.
_LIMITS = """\
import os, sys, time
kind, amount = input().split()
if kind == "work":
    while time.process_time() < float(amount):
        pass
elif kind == "wait":
    time.sleep(float(amount))
elif kind == "space":
    space = bytes(int(amount))
elif kind == "print":
    sys.stdout.write(("x" * 63 + "\\n") * (int(amount) // 64))
    sys.exit(0)
print("done", flush=True)
if kind == "exit":
    os._exit(int(amount))
if kind == "signal":
    os.kill(os.getpid(), int(amount))
    time.sleep(1)
"""

# Right programs in the other languages: they print a number times 7.
_COMPILED = {
    "cpp": """\
#include <iostream>
int main() {
    long n;
    std::cin >> n;
    std::cout << n * 7;
}
""",
    "java": """\
public class Main {
    public static void main(String[] arguments) {
        System.out.println(new java.util.Scanner(System.in).nextLong() * 7);
    }
}
""",
    "nodejs": "console.log(require('fs').readFileSync(0, 'utf8') * 7);\n",
    "rust": """\
fn main() {
    let n: i64 = std::io::stdin().lines().next().unwrap().unwrap().parse().unwrap();
    println!("{}", n * 7);
}
""",
    "go": """\
package main
import "fmt"
func main() {
	var n int
	fmt.Scan(&n)
	fmt.Println(n * 7)
}
""",
}

_PROMPT = "def total(values, step=1):\n"
_FUNCTION = """\
def total(values, step=1):
    match values:
        case []:
            return {"sum": 0, "text": ""}
        case [int(), *rest]:
            return {"sum": sum(values) * step, "text": "žluť", "rest": tuple(rest)}
"""
_CHECK = """\
def check(candidate):
    assert candidate([]) == {"sum": 0, "text": ""}
    assert candidate([4, 5, 6], step=3) == {"sum": 45, "text": "žluť", "rest": (5, 6)}
"""
