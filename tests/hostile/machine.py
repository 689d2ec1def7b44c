"""Detection of traces that malicious programs leave on the sandbox's machine."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

SLOTS = 4
INIT = "plumbline-slot"


@dataclass(frozen=True)
class Machine:
    """``user`` is one of the sandbox's slots, or the user that all of them share.

    ``before`` are the files that another test is to blame for.
    """

    temp_root: Path
    user: int
    before: frozenset[str] = frozenset()

    async def wait_until_clean(self, seconds: float = 10) -> None:
        give_up = time.monotonic() + seconds
        while left := [*self.processes(), *(set(self.files()) - self.before)]:
            assert time.monotonic() < give_up, left
            await asyncio.sleep(0.05)

    def files(self) -> list[str]:
        """What runs left: the workspaces of the slots stay, and are empty."""
        folders = [path for path in self.temp_root.iterdir() if path.is_dir()]
        return [str(path) for folder in folders for path in folder.iterdir()]

    def processes(self) -> list[str]:
        """Those with the sandbox's folder in their environment, and those of its slots' users.

        The slots' own processes stay; all others are children of an init.
        """
        return [
            f"{path.name}: {_command(path)!r}"
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and self._is_ours(path) and _is_init(_parent(path))
        ]

    def _is_ours(self, process: Path) -> bool:
        try:
            if process.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            if process.stat().st_uid != os.getuid() and self._near(process.stat().st_uid):
                return True
            return f"HOME={self.temp_root}/".encode() in process.joinpath("environ").read_bytes()
        except OSError:
            return False

    def _near(self, user: int) -> bool:
        return self.user != os.getuid() and abs(user - self.user) < SLOTS


def _is_init(process: Path) -> bool:
    words = _command(process).split("\0")
    return "-c" in words[1:2] and INIT in words


def _command(process: Path) -> str:
    try:
        return process.joinpath("cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _parent(process: Path) -> Path:
    try:
        return Path("/proc", process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return process
