"""Calls of SandboxFusion with their limits, and the results of ``/run_code`` and ``/submit``."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from shared.schemas import InfraFailure

# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_SUBMIT_CONCURRENCY = 3


@dataclass(frozen=True, slots=True)
class RunCode:
    """Call that runs a program; memory in MiB."""

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()

    @property
    def longest(self) -> float:
        """Longest execution time by the request's own limits."""
        return self.compile_timeout + self.run_timeout

    @property
    def body(self) -> bytes:
        fields = asdict(self)
        fields["memory_limit_MB"] = fields.pop("memory_limit_mb")
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Submit:
    """Call of the data-set API; ``timeout`` applies to compiling and to running each case.

    ``id`` is that of the record in the server's data set, if none comes with ``config``.
    """

    dataset: str
    id: int | str
    completion: str
    config: Mapping[str, Any]
    cases: int
    timeout: float

    @property
    def longest(self) -> float:
        """Longest execution time of all cases by their own limits."""
        rounds = -(-self.cases // _SUBMIT_CONCURRENCY)
        return 2 * self.timeout * rounds

    @property
    def body(self) -> bytes:
        names = ("dataset", "id", "completion", "config")
        return json.dumps({name: getattr(self, name) for name in names}).encode()


class CommandResult(BaseModel):
    """Result of one command; seconds. A negative ``return_code`` is a signal."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    """Response of ``/run_code``; ``files`` are base64."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    files: dict[str, str] = Field(default_factory=dict)

    def file(self, name: str) -> bytes:
        """Return a fetched file; empty if it is missing."""
        try:
            return base64.b64decode(self.files.get(name, ""))
        except ValueError:
            return b""


class SubmitCase(BaseModel):
    """Result of one case, with the test as the server has it."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: dict[str, Any] | None = None


class SubmitResponse(BaseModel):
    """Response of ``/submit``."""

    accepted: bool
    tests: list[SubmitCase]


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)
