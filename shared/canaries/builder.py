"""Parts of canaries: names and numbers of a round, problems, completions, limits."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Template

from shared.canaries.expectation import Canary, CanaryLimits, ExpectedCase
from shared.canaries.profile import CanaryProfile
from shared.config import Config
from shared.schemas import Problem, sha256
from shared.statuses import CaseCode, FinalStatus, VerdictDetail

MIB = 1024 * 1024
# Limits of canaries that try other things: a run's own may be too small for any program.
_LEAST_SECONDS, _LEAST_MEMORY, _LEAST_PROCESSES = 10.0, 512, 16
# Address space of an interpreter before it does anything, in MiB, generously.
_INTERPRETER = 160
# More than this some machines refuse to any program.
_MOST_BELOW = 2048
_NAMES = (
    *("count", "total", "values", "result", "items", "answer", "numbers", "solve", "data", "best"),
    *("current", "line", "left", "right", "table", "graph", "node", "score", "size", "words"),
)

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trial:
    """A case of a canary: its input, the right output, and what it must lead to."""

    stdin: str
    output: str
    expected: ExpectedCase


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Seconds of a limit, and of programs below and above it, which ``work`` or ``wait``."""

    limit: float
    below: float
    above: float
    kind: str = "work"

    def below_text(self) -> str:
        return (
            f"time is miscounted: {self.below:g} s of work fails under a limit of {self.limit:g} s"
        )

    def above_text(self) -> str:
        return (
            f"time limit not enforced: {self.above:g} s of work under a limit of {self.limit:g} s"
        )


# A program is killed at 1.25 times the limit, so one below 1 and above 0.63 of it shows a limit
# that is halved, or time that is counted twice. Load cannot exchange the verdicts: the one above
# would print its output only after twelve times the limit, the one below is tried again.
CPU_LIMIT = TimeLimit(limit=0.25, below=0.19, above=3.0)
# With limits in wall-clock seconds load decides, so the margins are wider.
WALL_LIMIT_BELOW = TimeLimit(limit=4.0, below=0.05, above=5.0)
WALL_LIMIT_ABOVE = TimeLimit(limit=0.5, below=0.05, above=5.0, kind="wait")


class Builder:
    """Makes the canaries of one round; a seed chooses all names and numbers."""

    def __init__(self, profile: CanaryProfile, config: Config, seed: str) -> None:
        self.profile = profile
        self._sandbox = config.sandbox
        self._judge = config.judge
        self.random = random.Random(seed)

    def number(self) -> int:
        """A number that occurs nowhere else."""
        return self.random.randrange(10**8, 10**9)

    def small(self) -> int:
        return self.random.randrange(1, 900)

    def words(self) -> dict[str, str]:
        """Names and numbers for a program."""
        # The digits keep them apart from the names that the programs themselves have.
        names = [f"{name}_{self.random.randrange(10)}" for name in self.random.sample(_NAMES, 3)]
        first, second, third = names
        return {
            "first": first,
            "second": second,
            "third": third,
            "nonce": str(self.number()),
            "mark": f"{self.random.choice(_NAMES)}-{self.number()}",
            "folders": "('/tmp', '/dev/shm', '.')",
            # Without the harness the parent may be a server that answers others.
            "kills": str(self.profile.strict),
        }

    def limits(self, *, seconds: float | None = None, own_memory: bool = False) -> CanaryLimits:
        """Limits of a canary; generous, except for those that it tries.

        Args:
            seconds: The time limit that it tries.
            own_memory: Whether it tries the run's memory limit.
        """
        memory = self._sandbox.memory_limit_mb
        return CanaryLimits(
            timeout=max(_LEAST_SECONDS, self._sandbox.timeout) if seconds is None else seconds,
            memory_mb=memory if own_memory else max(_LEAST_MEMORY, memory),
            output_mb=1,
            processes=max(_LEAST_PROCESSES, self._judge.max_processes),
        )

    def memory_below(self) -> tuple[int, str]:
        """MiB within the run's limit, 0 if it has no room for them; and the fault if they fail."""
        limit = self._sandbox.memory_limit_mb
        size = min(_MOST_BELOW, max(0, int((limit - _INTERPRETER) * 0.8)))
        return size, f"memory is refused: {size} MiB under a limit of {limit} MiB"

    def memory_above(self) -> tuple[int, str]:
        """MiB beyond the run's limit, and the fault if they are allocated."""
        limit = self._sandbox.memory_limit_mb
        size = limit + limit // 10 + 64
        return size, f"memory limit not enforced: {size} MiB allocated under a limit of {limit} MiB"

    def stdio(
        self,
        name: str,
        template: str,
        words: Words,
        trials: Sequence[Trial],
        fault: str,
        limits: CanaryLimits | None = None,
    ) -> Canary:
        """A program with standard input and output; its cases decide."""
        tests: dict[str, object] = {
            "inputs": [trial.stdin for trial in trials],
            "outputs": [trial.output for trial in trials],
        }
        if self.profile.strict:
            tests["checker"] = "exact"
        cases = [trial.expected for trial in trials]
        return self.judged(name, template, words, tests, cases, fault, limits)

    def judged(
        self,
        name: str,
        template: str,
        words: Words,
        tests: Mapping[str, object],
        cases: Sequence[ExpectedCase],
        fault: str,
        limits: CanaryLimits | None = None,
    ) -> Canary:
        """A program whose cases decide."""
        statuses = frozenset(FinalStatus)
        return self._canary(name, template, words, tests, tuple(cases), statuses, fault, limits)

    def graded(
        self,
        name: str,
        template: str,
        words: Words,
        tests: Mapping[str, object],
        status: FinalStatus | None,
        fault: str,
        limits: CanaryLimits | None = None,
        most_cpu: float | None = None,
    ) -> Canary:
        """A program whose final status decides; None for any but an accepted answer."""
        rejected = frozenset(FinalStatus) - {FinalStatus.SUCCESS}
        statuses = rejected if status is None else frozenset({status})
        canary = self._canary(name, template, words, tests, (), statuses, fault, limits)
        return replace(canary, most_cpu=most_cpu)

    def _canary(
        self,
        name: str,
        template: str,
        words: Words,
        tests: Mapping[str, object],
        cases: tuple[ExpectedCase, ...],
        statuses: frozenset[FinalStatus],
        fault: str,
        limits: CanaryLimits | None,
    ) -> Canary:
        program = Template(template).substitute(words)
        return Canary(
            name=name,
            problem=self._problem(tests),
            completion=f"```{self.profile.language}\n{program}```\n",
            limits=limits or self.limits(),
            cases=cases,
            statuses=statuses,
            fault=fault,
        )

    def _problem(self, tests: Mapping[str, object]) -> Problem:
        prompt = f"Problem {self.number()}"
        return Problem(
            dataset="problems",
            split="test",
            problem_id=str(self.number()),
            prompt=prompt,
            data_source="problems",
            ground_truth=json.dumps(tests),
            difficulty="",
            sandbox_dataset="",
            sandbox_id="",
            prompt_sha256=sha256(prompt),
        )


def passes(fault: str, output: str | None = None) -> ExpectedCase:
    """A case that must pass; with ``output``, to the byte."""
    return ExpectedCase(frozenset({CaseCode.PASSED}), fault, output=output)


def fails(fault: str, code: CaseCode, detail: VerdictDetail | str | None = None) -> ExpectedCase:
    """A case that must fail in one way."""
    return ExpectedCase(frozenset({code}), fault, detail)


def too_late(fault: str) -> ExpectedCase:
    """A case that must be stopped before its program prints anything."""
    return ExpectedCase(frozenset({CaseCode.TIMEOUT}), fault, silent=True)
