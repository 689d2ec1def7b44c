"""Resource limits, set by the shell's ``ulimit`` just before the program replaces it.

Not in a preexec hook, which would copy the server's memory for every run. RLIMIT_STACK stays as it
is: it sets the default stack of threads, and a large one makes every thread creation fail.
"""

import resource
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

KIB = 1024
MIB = 1024 * KIB
FILE_BLOCK = 512


@dataclass(frozen=True)
class Limits:
    """In bytes and counts; None leaves a limit as the server has it."""

    memory: int | None
    file_size: int | None
    open_files: int | None
    processes: int | None

    def shell(self) -> str:
        commands = ["ulimit -c 0"]
        if self.memory is not None:
            memory = max(1, self.memory // KIB)
            commands += [
                f"ulimit -v {_clamp(memory, resource.RLIMIT_AS, KIB)}",
                f"ulimit -d {_clamp(memory, resource.RLIMIT_DATA, KIB)}",
            ]
        if self.file_size is not None:
            blocks = _clamp(self.file_size // FILE_BLOCK, resource.RLIMIT_FSIZE, FILE_BLOCK)
            commands.append(f"ulimit -f {blocks}")
        if self.open_files is not None:
            commands.append(f"ulimit -n {_clamp(self.open_files, resource.RLIMIT_NOFILE, 1)}")
        if self.processes is not None:
            processes = _clamp(self.processes, resource.RLIMIT_NPROC, 1)
            commands.append(f"ulimit -{_process_flag()} {processes}")
        return " && ".join(commands)


def memory_limit(megabytes: int) -> int | None:
    """Bytes of a request's ``memory_limit_MB``: not positive, or beyond all sense, is no limit."""
    limit = megabytes * MIB
    return limit if 0 < limit < 2**62 else None


def _clamp(value: int, kind: int, unit: int) -> int:
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard // unit)


@cache
def _process_flag() -> str:
    """``-u`` in most shells, ``-p`` in dash, where ``-u`` does not exist."""
    shell = shutil.which("sh") or "/bin/sh"
    answer = subprocess.run([shell, "-c", "ulimit -u"], capture_output=True, check=False)
    return "u" if answer.returncode == 0 else "p"
