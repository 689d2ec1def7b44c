"""What SandboxFusion is asked and what it answers. Times are seconds."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

# What a call may take beyond its own limits: the queue of a busy sandbox is no error.
_SLACK = 60.0
# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_SUBMIT_CONCURRENCY = 3


class CommandResult(BaseModel):
    """One command, compile or run."""

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
    def timed_out(self) -> bool:
        return self.run_result is not None and self.run_result.status == "TimeLimitExceeded"

    @property
    def executed(self) -> float:
        """Seconds that its commands ran."""
        commands = (self.compile_result, self.run_result)
        return sum(c.execution_time or 0.0 for c in commands if c)

    def file(self, name: str) -> bytes:
        """A fetched file; empty where there is none."""
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
class Usage:
    """What answers used of the sandbox: CPU seconds and wall-clock seconds, all runs together."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class RunCode:
    """A request to run a program; memory in MiB.

    ``usage_of`` reads out of the response what the answers used, where it says.
    """

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()
    usage_of: Callable[[RunCodeResponse], Usage] | None = None

    def body(self) -> Mapping[str, Any]:
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
    def deadline(self) -> float:
        return self.compile_timeout + self.run_timeout + _SLACK


@dataclass(frozen=True, slots=True)
class Submit:
    """A completion for the data-set API; ``timeout`` is a case's, for compiling and for running."""

    dataset: str
    completion: str
    config: Mapping[str, Any]
    cases: int
    timeout: float

    def body(self) -> Mapping[str, Any]:
        return {
            "dataset": self.dataset,
            "id": 0,
            "completion": self.completion,
            "config": self.config,
        }

    @property
    def deadline(self) -> float:
        rounds = -(-self.cases // _SUBMIT_CONCURRENCY)
        return 2 * self.timeout * rounds + _SLACK
