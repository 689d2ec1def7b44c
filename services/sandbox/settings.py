"""Settings of the sandbox server, from environment variables."""

import os
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.sandbox import programs
from shared.service.settings import ServiceSettings, Token, TokenFile

MIB = 1024 * 1024


class IsolationChoice(StrEnum):
    AUTO = "auto"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = "none"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class SandboxSettings(ServiceSettings):
    """Settings of the sandbox server, with the prefix ``PLUMBLINE_SANDBOX_``."""

    model_config = SettingsConfigDict(env_prefix="PLUMBLINE_SANDBOX_")

    port: int = Field(default=8080, validation_alias="PORT", ge=0, le=65535)
    """Port to listen on; 0 for a free one."""

    token_variable: ClassVar[str] = "PLUMBLINE_SANDBOX_TOKEN"
    token: Token = None
    """Token that clients must send, as ``Authorization: Bearer …``; by default none is required."""
    token_file: TokenFile = None
    """File with that token."""
    concurrency: int = Field(default_factory=_cores, ge=1)
    """Programs that run at once; by default one per core."""
    queue_limit: int = Field(256, ge=0)
    """Requests that may wait; beyond it clients get 503."""
    isolation: IsolationChoice = IsolationChoice.AUTO
    """``auto`` uses the first mode that works; any other mode is an error if it does not work."""
    python: Path = Field(default_factory=programs.interpreter)
    """Interpreter that runs the programs, with the packages that they may import; by default that
    of the programs' environment (judging.md)."""
    temp_root: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Parent of the run folders; by default the system's temporary folder."""
    readonly_paths: str = ""
    """Further paths that programs may read, separated by ``:``."""
    output_limit_bytes: int = Field(8 * MIB, ge=1)
    """Limit of stdout and of stderr; beyond it the run is killed."""
    fetch_limit_bytes: int = Field(96 * MIB, ge=0)
    """Limit of all fetched files of one request."""
    file_limit_bytes: int = Field(512 * MIB, ge=1)
    """Largest file that a program may write (RLIMIT_FSIZE)."""
    tmp_limit_bytes: int = Field(256 * MIB, ge=1)
    """Size of the private /tmp."""
    disk_limit_bytes: int = Field(512 * MIB, ge=1)
    """Disk space of one run; beyond it the run is killed."""
    disk_reserve_bytes: int = Field(256 * MIB, ge=0)
    """Free space below which the disk counts as full: clients get 503 and try again."""
    process_limit: int = Field(256, ge=1)
    """Processes and threads of one run (RLIMIT_NPROC)."""
    open_files_limit: int = Field(1024, ge=16)
    """Open files of one process (RLIMIT_NOFILE)."""
    body_limit_bytes: int = Field(64 * MIB, ge=1)
    """Largest request body. The judge sends about 16 MiB of inputs per call, or one input."""
    shutdown_seconds: float = Field(30.0, ge=0)
    """Seconds for running requests after SIGTERM."""

    def extra_readonly_paths(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.readonly_paths.split(":") if part)
