"""Requests to SandboxFusion and its responses, as far as the judge uses them."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel

from shared.harness.wire import CallResult
from shared.schemas import InfraFailure

# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_SUBMIT_CONCURRENCY = 3


class CommandResult(BaseModel):
    """Result of one command: compile or run."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    files: dict[str, str] = {}

    @property
    def executed(self) -> float:
        """Execution time of compiling and running together, in seconds."""
        commands = (self.compile_result, self.run_result)
        return sum(c.execution_time or 0.0 for c in commands if c)

    def file(self, name: str) -> bytes:
        """Return a fetched file; empty if it is missing."""
        try:
            return base64.b64decode(self.files.get(name, ""))
        except ValueError:
            return b""


class SubmittedTest(BaseModel):
    passed: bool
    exec_info: RunCodeResponse


class SubmitResponse(BaseModel):
    accepted: bool
    extracted_code: str | None = None
    tests: list[SubmittedTest] = []


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """CPU and wall-clock time of all programs of a call together."""

    cpu: float
    wall: float

    @classmethod
    def of(cls, result: CallResult) -> Self:
        cases = result.cases.values()
        return cls(sum(case.cpu for case in cases), sum(case.wall for case in cases))


@dataclass(frozen=True, slots=True)
class RunCode:
    """Request to run a program; memory in MiB.

    ``usage_of`` extracts the resource usage of the programs from the response.
    """

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()
    usage_of: Callable[[RunCodeResponse], SandboxUsage] | None = None

    def body(self) -> Mapping[str, object]:
        return {
            "code": self.code,
            "language": self.language,
            "stdin": self.stdin,
            "compile_timeout": self.compile_timeout,
            "run_timeout": self.run_timeout,
            "memory_limit_MB": self.memory_limit_mb,
            "files": self.files,
            "fetch_files": self.fetch_files,
        }

    @property
    def longest(self) -> float:
        """Longest execution time by the request's own limits."""
        return self.compile_timeout + self.run_timeout


@dataclass(frozen=True, slots=True)
class Submit:
    """Request to the data-set API; ``timeout`` applies to compiling and to running each case."""

    dataset: str
    completion: str
    config: Mapping[str, Any]
    cases: int
    timeout: float

    def body(self) -> Mapping[str, object]:
        return {
            "dataset": self.dataset,
            "id": 0,
            "completion": self.completion,
            "config": self.config,
        }

    @property
    def longest(self) -> float:
        """Longest execution time of all cases by their own limits."""
        rounds = -(-self.cases // _SUBMIT_CONCURRENCY)
        return 2 * self.timeout * rounds


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)
