"""Programs that a tool of a model runs: one program, its input and limits, and what it did."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from shared.harness.wire import Text
from shared.schemas import Part

MAX_CODE = 256 * 1024
"""Characters of a program."""
MAX_STDIN = 1024 * 1024
"""Characters of its input."""
MAX_OUTPUT = 64 * 1024
"""Bytes of each of its two outputs that are kept, from the beginning."""
MAX_SECONDS = 60.0
"""Longest time of a program."""

Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]  # fmt: skip
"""Languages of SandboxFusion's ``/run_code``; a sandbox runs those that are installed in it."""


class Program(Part):
    """A program to run once.

    ``timeout`` are wall-clock seconds that it may run, and that its compiler may take.
    ``memory_limit_mb`` is address space; None means the limit of the service's config.
    """

    code: Text = Field(max_length=MAX_CODE)
    stdin: Text = Field(default="", max_length=MAX_STDIN)
    language: Language = "python"
    timeout: float = Field(default=10.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    memory_limit_mb: int | None = Field(default=None, ge=1, le=1024 * 1024)


class ProgramStatus(StrEnum):
    """Status of a program that ran, or was not accepted by its compiler."""

    OK = "ok"
    """It ended by itself with exit code 0."""
    ERROR = "error"
    """It ended with another exit code, or by a signal."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """It ended because it was refused memory."""
    COMPILE_ERROR = "compile_error"


class ProgramResult(Part):
    """What a program did; after a compile error, what the compiler did.

    ``exit_code`` is negative for a signal, and None if the program was killed for its time or did
    not run. ``seconds`` is wall-clock time. ``truncated``: an output was longer than ``MAX_OUTPUT``
    bytes and has been cut.
    """

    status: ProgramStatus
    stdout: str
    stderr: str
    exit_code: int | None = None
    seconds: float = 0.0
    truncated: bool = False


def cut_output(text: str | None) -> tuple[str, bool]:
    """The first ``MAX_OUTPUT`` bytes of an output as text, and whether there were more."""
    data = (text or "").encode("utf-8", "replace")
    return data[:MAX_OUTPUT].decode("utf-8", "ignore"), len(data) > MAX_OUTPUT
