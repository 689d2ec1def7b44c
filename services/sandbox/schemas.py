"""The wire format of SandboxFusion's ``/run_code``."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]  # fmt: skip


class RunStatus(StrEnum):
    SUCCESS = "Success"
    FAILED = "Failed"
    SANDBOX_ERROR = "SandboxError"


class CommandStatus(StrEnum):
    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class RunCodeRequest(BaseModel):
    """Validated in pydantic's lax mode, unknown fields ignored, as the original does."""

    code: str
    language: Language
    compile_timeout: float = 10
    run_timeout: float = 10
    memory_limit_MB: int = -1
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class CommandResult(BaseModel):
    """How one command ended; a negative ``return_code`` is the signal that killed it."""

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is CommandStatus.FINISHED and self.return_code == 0


class RunCodeResponse(BaseModel):
    status: RunStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


def overall_status(results: list[CommandResult]) -> tuple[RunStatus, str]:
    """The request's status and message: an error outweighs a timeout outweighs an exit code."""
    for result in results:
        if result.status is CommandStatus.ERROR:
            return RunStatus.SANDBOX_ERROR, result.stderr or ""
    if all(result.succeeded for result in results):
        return RunStatus.SUCCESS, ""
    return RunStatus.FAILED, ""
