"""Settings of the sandbox server from the environment."""

import os
import sys
import tempfile
from enum import StrEnum
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from shared.service.settings import ServiceSettings

MIB = 1024 * 1024


class IsolationChoice(StrEnum):
    AUTO = "auto"
    BWRAP = "bwrap"
    UNSHARE = "unshare"
    NONE = "none"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _base_interpreter() -> Path:
    # The interpreter behind a virtual environment: programs must not see the server's packages.
    executable: str = getattr(sys, "_base_executable", sys.executable)
    return Path(executable).resolve()


class SandboxSettings(ServiceSettings):
    """Variables have the prefix ``PLUMBLINE_SANDBOX_``, except HOST, PORT and LOG_LEVEL.

    Attributes:
        concurrency: Requests that run at once; one per core keeps CPU-bound programs honest.
        queue_limit: Requests that may wait; beyond it they are rejected with 503.
        isolation: ``auto`` takes the first that works; any other is an error if it does not.
        python: Interpreter that runs the programs.
        temp_root: Parent of the runs' folders.
        datasets: Folder of JSONL files with records, ``<dataset>.jsonl`` each, which requests name
            by id; without it every request must contain its record.
        readonly_paths: More paths that programs may read, separated by ``:``.
        output_limit_bytes: Cap of stdout and of stderr; beyond it the run is killed.
        submit_output_limit: Characters that all runs of one submit may print together.
        fetch_limit_bytes: Cap of all fetched files of a request together.
        file_limit_bytes: Largest file a program may write (RLIMIT_FSIZE).
        tmp_limit_bytes: Size of the private /tmp.
        process_limit: Processes and threads of one run (RLIMIT_NPROC).
        open_files_limit: Open files of one process (RLIMIT_NOFILE).
        body_limit_bytes: Largest request body.
        shutdown_seconds: Time that running requests get to finish after SIGTERM.
    """

    model_config = SettingsConfigDict(env_prefix="PLUMBLINE_SANDBOX_")

    port: int = Field(default=8080, validation_alias="PORT", ge=0, le=65535)

    concurrency: int = Field(default_factory=_cores, ge=1)
    queue_limit: int = Field(256, ge=0)
    isolation: IsolationChoice = IsolationChoice.AUTO
    python: Path = Field(default_factory=_base_interpreter)
    temp_root: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()))
    datasets: Path | None = None
    readonly_paths: str = ""
    output_limit_bytes: int = Field(8 * MIB, ge=1)
    submit_output_limit: int = Field(64 * MIB, ge=1)
    fetch_limit_bytes: int = Field(64 * MIB, ge=0)
    file_limit_bytes: int = Field(512 * MIB, ge=1)
    tmp_limit_bytes: int = Field(256 * MIB, ge=1)
    process_limit: int = Field(256, ge=1)
    open_files_limit: int = Field(1024, ge=16)
    body_limit_bytes: int = Field(256 * MIB, ge=1)
    shutdown_seconds: float = Field(30.0, ge=0)

    @field_validator("datasets", mode="before")
    @classmethod
    def _no_folder(cls, value: object) -> object:
        return value or None  # an empty variable is not the current folder

    def extra_readonly_paths(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.readonly_paths.split(":") if part)
