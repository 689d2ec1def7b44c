"""Canaries: fixed programs whose verdicts show whether a sandbox judges as it must.

There is one set per kind of tests. Limits of time and output are scaled down, so that a set takes
about a second. The memory limit is the run's own, and hardly a page of it is touched.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from services.judge.verdict import CaseOutcome
from shared.config import Config, JudgeConfig
from shared.harness.languages import LANGUAGES, PROGRAMS
from shared.schemas import Problem, StdioTests, sha256
from shared.statuses import CaseCode, VerdictDetail
from shared.text import shorten_end

_MIB = 1024 * 1024
OUTPUT_MIB = 1
# Limits of canaries that try other limits: a run's own may be too small for any program.
_SECONDS, _MEMORY = 10.0, 512
# Address space of an interpreter before it does anything, in MiB, generously.
_INTERPRETER = 160
# More MiB than this some machines refuse to any program.
_MOST_BELOW = 2048
_LONG_INPUT = 3 * _MIB // 2
_LINE = 64
_WAIT = 0.35
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class CanaryProfile:
    """The judge's settings that decide which canaries a sample's sandbox gets."""

    method: str
    language: str
    functions: bool

    @classmethod
    def of(cls, settings: JudgeConfig, problem: Problem) -> "CanaryProfile":
        """The profile of a problem's samples, under the settings for its data set."""
        functions = not isinstance(problem.tests, StdioTests)
        return cls(settings.method, "python" if functions else settings.language, functions)

    def __str__(self) -> str:
        return f"{self.method} {self.language} {'functions' if self.functions else 'programs'}"

    @property
    def supported(self) -> bool:
        """Whether there are canaries in the language."""
        return self.language in PROGRAMS

    @property
    def strict(self) -> bool:
        """Whether the method has CPU limits, exact checkers, details and a limit of output."""
        return self.method == "batch" or (self.functions and self.method != "submit")

    @property
    def limits_memory(self) -> bool:
        """Whether anything limits memory: nothing does where SandboxFusion judges."""
        return self.method != "submit"


@dataclass(frozen=True, slots=True)
class CanaryCase:
    """A case of a canary, and the outcome that it must have.

    Attributes:
        fault: What a sandbox does that judges the case otherwise; a clause without a full stop.
        stdin: Its input.
        output: Its expected output.
        code: The outcome.
        detail: The outcome's detail; None for any.
        exact: Whether the output must be right to the byte, which checkers forgive.
        most_cpu: CPU seconds after which the case was certainly not stopped at its limit.
    """

    fault: str
    stdin: str = ""
    output: str = ""
    code: CaseCode = CaseCode.PASSED
    detail: str | None = None
    exact: bool = False
    most_cpu: float | None = None

    def difference(self, outcome: CaseOutcome) -> str | None:
        """How an outcome differs from the required one; None if it does not."""
        if outcome.code is not self.code:
            return f"{_shown(outcome)} instead of {self.code.name.lower()}"
        if self.detail is not None and outcome.detail != self.detail:
            return f"{_shown(outcome)} instead of {self.detail}"
        if self.most_cpu is not None and (outcome.cpu_time or 0.0) > self.most_cpu:
            return f"{outcome.cpu_time:.1f} s of CPU time were used"
        if self.exact and outcome.actual != self.output:
            return f"{outcome.actual!r:.60} instead of {self.output!r:.60}"
        return None


@dataclass(frozen=True, slots=True)
class Canary:
    """A program, its tests, its limits in seconds and MiB, and the required outcomes."""

    name: str
    code: str
    language: str
    tests: Mapping[str, object]
    cases: Sequence[CanaryCase]
    timeout: float
    memory: int

    @property
    def completion(self) -> str:
        return f"```{self.language}\n{self.code}```\n"

    @property
    def problem(self) -> Problem:
        return Problem(
            dataset="canaries",
            split="test",
            problem_id=self.name,
            prompt=self.name,
            data_source="canaries",
            ground_truth=json.dumps(self.tests),
            difficulty="",
            sandbox_dataset="",
            sandbox_id="",
            prompt_sha256=sha256(self.name),
        )

    def findings(self, outcomes: Sequence[CaseOutcome]) -> list[str]:
        """Describe how the outcomes differ from the required ones; empty if they do not."""
        if len(outcomes) != len(self.cases):
            return [f"{self.cases[0].fault} ({len(outcomes)} of {len(self.cases)} cases ran)"]
        pairs = zip(self.cases, outcomes, strict=True)
        found = [(case.fault, case.difference(outcome)) for case, outcome in pairs]
        return list(dict.fromkeys(f"{fault} ({text})" for fault, text in found if text))

    def late(self, outcomes: Sequence[CaseOutcome]) -> bool:
        """Whether a case timed out that should not: load may be the cause, so it is tried again."""
        return any(
            outcome.code is CaseCode.TIMEOUT is not case.code
            for case, outcome in zip(self.cases, outcomes, strict=False)
        )


def canaries(profile: CanaryProfile, config: Config, *, limits: bool = True) -> list[Canary]:
    """The canaries of a supported profile under a run's limits.

    A language besides Python has one program; with ``limits``, Python programs try the limits.

    The first and the last one are the same program with other input. So results that are remembered
    by the program alone, and files that it left behind, come to light.
    """
    builder = _Builder(profile, config)
    if profile.functions:
        return list(builder.functions())
    if profile.language in _COMPILED:
        return [builder.compiled(profile.language), *(builder.limits() if limits else ())]
    return list(builder.programs())


def _shown(outcome: CaseOutcome) -> str:
    name = outcome.code.name.lower() + (f", {outcome.detail}" if outcome.detail else "")
    last = (outcome.stderr or "").strip().rsplit("\n", 1)[-1]
    return f"{name}: {shorten_end(last, _SHOWN)}" if last else name


class _Builder:
    def __init__(self, profile: CanaryProfile, config: Config) -> None:
        self._profile = profile
        self._strict = profile.strict
        self._memory = config.sandbox.memory_limit_mb
        self._seconds = max(_SECONDS, config.sandbox.timeout)
        # The limit, and what a program below and one above it do. A program is killed at 1.25 times
        # the CPU limit, so 0.76 of it shows a limit that is halved, or time that is counted twice.
        # With limits in wall-clock seconds load decides, so the margins are wider.
        self._below = (0.25, "work", 0.19) if self._strict else (4.0, "work", 0.05)
        self._above = (0.25, "work", 3.0) if self._strict else (0.5, "wait", 5.0)

    def programs(self) -> Iterator[Canary]:
        fault = (
            "a right program in Python 3.10 with Unicode text is not accepted, or finds files that "
            "another program left"
        )
        inputs = ["\nžř漢🐍\n", "11\nb\n", "2 3 4\nc d\n"]
        outputs = ["none\n🐍漢řž\n", "one 3\nb\n", "3 26\nd c\n"]
        right = [CanaryCase(fault, *texts) for texts in zip(inputs, outputs, strict=True)]
        yield self._stdio("right", _RIGHT, right)
        fault, code = "a wrong output is not judged a wrong answer", CaseCode.WRONG_ANSWER
        wrong = [CanaryCase(fault, case.stdin, case.output, code) for case in right]
        yield self._stdio("wrong", _WRONG, wrong)
        yield self._stdio("bytes", _BYTES, list(self._bytes()))
        yield from self.limits()
        fault = "a right program with threads, processes and a shell is not accepted"
        yield self._stdio("processes", _PROCESSES, [CanaryCase(fault, "6\n", "7 36 7 11\n")])
        others = [("5\nx\n", "one 2\nx\n"), ("1 2 3\ny\n", "3 11\ny\n")]
        again = [CanaryCase(right[0].fault, *texts) for texts in others]
        yield self._stdio("right again", _RIGHT, again)

    def limits(self) -> Iterator[Canary]:
        yield self._stdio("limits", _LIMITS, list(self._limits()), self._below[0], self._memory)
        if not self._strict:
            above = self._time_above("done\n")
            yield self._stdio("time limit", _LIMITS, [above], self._above[0])

    def compiled(self, language: str) -> Canary:
        title = LANGUAGES[language].title
        case = CanaryCase(f"a right program in {title} is not accepted", "5\n", "12 35\n")
        return replace(self._stdio(title, _COMPILED[language], [case]), language=language)

    def functions(self) -> Iterator[Canary]:
        tests = {"test": _CHECK, "entry_point": "total", "prompt": _PROMPT}
        right = CanaryCase("a right function is not accepted")
        yield self._canary("right", _FUNCTION, tests, [right])
        fault, code = "a wrong function is not judged a wrong answer", CaseCode.WRONG_ANSWER
        asserted = {"test_list": ["assert total([2, 3])['sum'] == 6"]}
        yield self._canary("wrong", _FUNCTION, asserted, [CanaryCase(fault, code=code)])
        for above in list(self._memory_cases(""))[-1:]:
            yield self._limited("memory", above, memory=self._memory)
        yield self._limited("time below", self._time_below(""), self._below[0])
        yield self._limited("time above", self._time_above(""), self._above[0])

    def _limited(
        self, name: str, case: CanaryCase, seconds: float | None = None, memory: int | None = None
    ) -> Canary:
        kind, amount = case.stdin.split()
        tests = {"test_list": [f"assert try_limit({kind!r}, {amount}) == {amount}"]}
        return self._canary(name, _FUNCTION_LIMITS, tests, [case], seconds, memory)

    def _stdio(
        self,
        name: str,
        code: str,
        cases: Sequence[CanaryCase],
        seconds: float | None = None,
        memory: int | None = None,
    ) -> Canary:
        tests: dict[str, object] = {
            "inputs": [case.stdin for case in cases],
            "outputs": [case.output for case in cases],
        }
        if self._strict:
            tests["checker"] = "exact"
        return self._canary(name, code, tests, cases, seconds, memory)

    def _canary(
        self,
        name: str,
        code: str,
        tests: Mapping[str, object],
        cases: Sequence[CanaryCase],
        seconds: float | None = None,
        memory: int | None = None,
    ) -> Canary:
        seconds = self._seconds if seconds is None else seconds
        memory = max(_MEMORY, self._memory) if memory is None else memory
        return Canary(name, code, "python", tests, cases, seconds, memory)

    def _bytes(self) -> Iterator[CanaryCase]:
        fault = "input or output is not passed on byte by byte"
        texts = ["a\n", "žluťoučký kůň 漢字 🐍\u2028end\n"]
        if self._strict:
            texts += ["a\r\nb\rc\r\n", "no newline", "d\n\n \t\n", "a\0b\n"]
        for text in texts:
            output = f"{len(text.encode())}\n{text}"
            yield CanaryCase(fault, text, output, exact=self._strict)
        long = "a line ž\n" * (_LONG_INPUT // 10)
        size, checksum = len(long.encode()), zlib.crc32(long.encode())
        yield CanaryCase(f"input is cut or changed: {size} bytes", long, f"{size} {checksum}")

    def _limits(self) -> Iterator[CanaryCase]:
        yield from self._memory_cases("done\n")
        fault = "an exit code is lost: a right output with exit code 3 is not a runtime error"
        yield CanaryCase(fault, "exit 3\n", "done\n", CaseCode.RUNTIME_ERROR)
        fault = "a signal is lost: the end of a program that SIGSEGV killed is another one"
        code, detail = CaseCode.RUNTIME_ERROR, "SIGSEGV" if self._strict else None
        yield CanaryCase(fault, "signal 11\n", "done\n", code, detail)
        if not self._strict:
            yield self._time_below("done\n")
            return
        limit = OUTPUT_MIB * _MIB
        line, below, above = "x" * (_LINE - 1) + "\n", limit - _LINE * 64, limit + _LINE * 1024
        fault = f"output is cut or refused: {below} bytes under a limit of {limit}"
        yield CanaryCase(fault, f"print {below}\n", line * (below // _LINE))
        fault = f"output limit not enforced: {above} bytes under a limit of {limit}"
        detail = VerdictDetail.OUTPUT_LIMIT
        yield CanaryCase(fault, f"print {above}\n", line * (above // _LINE), code, detail)
        fault = f"waiting is counted as work: {_WAIT} s asleep under a limit of {self._below[0]} s"
        yield CanaryCase(fault, f"wait {_WAIT}\n", "done\n")
        yield self._time_below("done\n")
        yield self._time_above("done\n")  # the last one: a run may allow a single time-out

    def _memory_cases(self, output: str) -> Iterator[CanaryCase]:
        if not self._profile.limits_memory:
            return
        limit = self._memory
        below = min(_MOST_BELOW, int((limit - _INTERPRETER) * 0.8))
        if below > 0:
            fault = f"memory is refused: {below} MiB under a limit of {limit} MiB"
            yield CanaryCase(fault, f"space {below * _MIB}\n", output)
        above = limit + limit // 10 + 64
        fault = f"memory limit not enforced: {above} MiB allocated under a limit of {limit} MiB"
        strict = self._strict and not self._profile.functions
        detail = VerdictDetail.MEMORY_LIMIT if strict else None
        yield CanaryCase(fault, f"space {above * _MIB}\n", output, CaseCode.RUNTIME_ERROR, detail)

    def _time_below(self, output: str) -> CanaryCase:
        limit, kind, seconds = self._below
        fault = f"time is miscounted: {seconds:g} s of work fails under a limit of {limit:g} s"
        return CanaryCase(fault, f"{kind} {seconds}\n", output)

    def _time_above(self, output: str) -> CanaryCase:
        limit, kind, seconds = self._above
        fault = f"time limit not enforced: {seconds:g} s of work under a limit of {limit:g} s"
        code, most = CaseCode.TIMEOUT, 0.8 * seconds if kind == "work" else None
        return CanaryCase(fault, f"{kind} {seconds}\n", output, code, most_cpu=most)


# Needs Python 3.10 (``match``, ``bit_count``, ``zip(strict=)``) and UTF-8; writes to both streams,
# and leaves files behind, which no other program may find.
_RIGHT = """\
import os, sys

def describe(values):
    match values:
        case []:
            return "none"
        case [int(number)]:
            return f"one {number.bit_count()}"
        case [head, *rest]:
            total = sum(a * b for a, b in zip(values, rest + [head], strict=True))
            return f"{len(values)} {total}"

print("working", file=sys.stderr, flush=True)
values = [int(word) for word in input().split()]
print(describe(values))
print(input()[::-1])
for folder in "/tmp", "/dev/shm", ".":
    place = os.path.join(folder, f"plumbline-canary-{len(values)}")
    if os.path.exists(place):
        print("found", folder)
    try:
        open(place, "w").close()
    except OSError:
        pass
"""

_WRONG = """\
print(len(input().split()))
"""

# Two modes: the length and the bytes themselves, or the length and a checksum of a long input.
_BYTES = """\
import sys, zlib
found = sys.stdin.buffer.read()
print("working", file=sys.stderr)
if len(found) > 9999:
    sys.stdout.buffer.write(b"%d %d" % (len(found), zlib.crc32(found)))
else:
    sys.stdout.buffer.write(b"%d\\n" % len(found) + found)
"""

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

_PROCESSES = """\
import multiprocessing, os, subprocess, threading

number, results = int(input()), []
thread = threading.Thread(target=lambda: results.append(number + 1))
thread.start()
thread.join()
ours, theirs = multiprocessing.Pipe()
context = multiprocessing.get_context("fork")
child = context.Process(target=lambda: theirs.send(number * number))
child.start()
results.append(ours.recv())
child.join()
pid = os.fork()
if pid == 0:
    os._exit(7)
results.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done = subprocess.run(["sh", "-c", "echo $((5 + 6))"], capture_output=True, text=True)
print(*results, done.stdout.strip())
"""

# Right programs in the other languages: they print a number plus 7 and times 7.
_COMPILED = {
    "cpp": """\
#include <iostream>
#include <tuple>

int main() {
    long n;
    std::cin >> n;
    auto [sum, product] = std::tuple{n + 7, n * 7};  // C++17
    std::cout << sum << " " << product << "\\n";
}
""",
    "java": """\
public class Main {
    public static void main(String[] arguments) {
        var number = new java.util.Scanner(System.in).nextLong();
        System.out.println((number + 7) + " " + number * 7);
    }
}
""",
    "nodejs": """\
const number = Number(require('fs').readFileSync(0, 'utf8'));
console.log(`${number + 7} ${number * 7}`);
""",
    "rust": """\
fn main() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let number: i64 = line.trim().parse().unwrap();
    println!("{} {}", number + 7, number * 7);
}
""",
    "go": """\
package main

import "fmt"

func main() {
	var number int
	fmt.Scan(&number)
	fmt.Println(number+7, number*7)
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
_FUNCTION_LIMITS = """\
import time

def try_limit(kind, amount):
    if kind == "work":
        while time.process_time() < amount:
            pass
    elif kind == "wait":
        time.sleep(amount)
    elif kind == "space":
        return len(bytes(amount))
    return amount
"""
