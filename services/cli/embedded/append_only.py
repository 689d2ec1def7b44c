"""Redis' append-only file of an embedded stack: what of it is damaged, and its repair.

Redis itself cuts a file that ends in the middle of a command, as after a crash. It refuses a file
that is damaged elsewhere. It ignores a file without its manifest, and starts from nothing.
"""

import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from services.cli.embedded.services import redis_binary
from shared.errors import OutputError, ServiceError

# The place in the folder of Redis 7 and of Redis 6.
_MANIFEST = "appendonlydir/appendonly.aof.manifest"
_SINGLE = "appendonly.aof"
_ANALYZED = re.compile(r"AOF analyzed: (?:filename=(\S+), )?size=(\d+), ok_up_to=(\d+)")
_ADVICE = "restore a backup (plumb restore), or use --force to start over"


@dataclass(frozen=True, slots=True)
class Damage:
    """A file of Redis that cannot be loaded completely.

    Attributes:
        file: The file.
        size: Its size in bytes.
        intact: Bytes before the damage.
        last: Whether it is the file with the latest writes, so that its beginning can be used.
    """

    file: Path
    size: int
    intact: int
    last: bool

    def __str__(self) -> str:
        return f"{self.file} is damaged after {self.intact} of {self.size} bytes"


def check_complete(folder: Path) -> None:
    """Check that Redis will not ignore files with data.

    Args:
        folder: Redis' data.

    Raises:
        ServiceError: The manifest is missing, or what it names.
    """
    manifest = folder / _MANIFEST
    parts = [*manifest.parent.glob("*.aof"), *manifest.parent.glob("*.rdb")]
    if parts and not manifest.exists():
        raise ServiceError(
            f"{manifest} is missing, and Redis would start from nothing beside "
            f"{parts[0].name}; put it back, {_ADVICE}"
        )


def latest(folder: Path) -> tuple[Path, int] | None:
    """The file with the latest writes, and its size in bytes; None if there is none."""
    file = _latest(folder)
    return (file, file.stat().st_size) if file is not None and file.exists() else None


def cut_note(before: tuple[Path, int] | None) -> str | None:
    """Describe what Redis cut off while it loaded; ``before`` is of :func:`latest`."""
    if before is None or not before[0].exists():
        return None
    file, size = before
    dropped = size - file.stat().st_size
    if dropped <= 0:
        return None
    return (
        f"Redis dropped the last {dropped} of {size} bytes of {file}, which ended in the middle of "
        "a write (a crash, or a full disk); what was lost with them is made again"
    )


def explain(folder: Path, output: str, error: ServiceError) -> ServiceError:
    """Return the error with which Redis ended, or one that names the damage of its files.

    Args:
        folder: Redis' data.
        output: The output folder, for the command that repairs.
        error: What is known without a look at the files.
    """
    target = _checked(folder)
    if target is None:
        return error
    damage, said = _find_damage(target)
    if damage is None:
        found = f"Redis cannot load {target}: {said}" if said else ""
        return ServiceError(f"{found}; {_ADVICE}") if found else error
    if not damage.last:
        return ServiceError(f"{damage}, and later writes depend on it; {_ADVICE}")
    lost = damage.size - damage.intact
    return ServiceError(
        f"{damage}. `plumb repair {shlex.quote(output)}` keeps what is before, and a copy, and "
        f"loses {lost} bytes of later writes, which the run makes again; or {_ADVICE}"
    )


def repair(folder: Path) -> tuple[Damage, Path] | None:
    """Cut the append-only file before its damage, after a copy of all of Redis' files.

    Returns:
        What was damaged and where the copy is; None if there is no damage.

    Raises:
        OutputError: There is no such file, or it cannot be repaired.
    """
    target = _checked(folder)
    if target is None:
        raise OutputError(f"{folder} has no append-only file of Redis")
    damage, said = _find_damage(target)
    if damage is None and not said:
        return None
    if damage is None or not damage.last:
        found = str(damage) if damage else f"{target} cannot be loaded ({said})"
        raise OutputError(f"{found}, and cannot be repaired; {_ADVICE}")
    kept = folder.with_name(f"{folder.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        shutil.copytree(folder, kept)
        with damage.file.open("r+b") as file:
            file.truncate(damage.intact)
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot repair {damage.file}: {error}") from None
    return damage, kept


def _checked(folder: Path) -> Path | None:
    """What redis-check-aof is told to check."""
    return next((path for name in (_MANIFEST, _SINGLE) if (path := folder / name).exists()), None)


def _latest(folder: Path) -> Path | None:
    manifest = folder / _MANIFEST
    if not manifest.exists():
        return folder / _SINGLE
    named = re.findall(r"^file (\S+) ", manifest.read_text(errors="replace"), re.MULTILINE)
    return manifest.parent / named[-1] if named else None


def _find_damage(target: Path) -> tuple[Damage | None, str]:
    """Look for the first damage, as Redis' own tool does; and what it said if it found another."""
    done = subprocess.run(
        # The server is the tool, if it is called so.
        ["redis-check-aof", str(target)],
        executable=redis_binary(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return None, ""
    for name, size, intact in _ANALYZED.findall(done.stdout):
        file = target.with_name(name) if name else target
        if int(intact) < int(size):
            last = file == target or file == _latest(target.parent.parent)
            return Damage(file, int(size), int(intact), last), ""
    said = (done.stdout + done.stderr).strip().splitlines()
    flaw = next((line for line in said if "rror" in line and "---" not in line), said[-1:] or "")
    return None, str(flaw)[:300] or "redis-check-aof refuses it"
