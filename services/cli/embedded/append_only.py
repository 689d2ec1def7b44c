"""Redis' append-only file of an embedded stack: damage is named, and never replaced by nothing.

Redis itself cuts a file that ends in the middle of a command, as after a crash. It refuses a file
that is damaged elsewhere. It ignores a file that its manifest does not name, and starts without it.
"""

import re
import shlex
import subprocess
from pathlib import Path

from services.cli.embedded.services import redis_binary, redis_version
from shared.errors import ServiceError

# The place in the folder of Redis 7 and of Redis 6.
_MANIFEST = "appendonlydir/appendonly.aof.manifest"
_SINGLE = "appendonly.aof"
# A file of Redis 7 by its number and kind; a base that was Redis 6's file keeps that name.
_PART = re.compile(r"appendonly\.aof(?:\.(\d+)\.(base|incr)\.(?:rdb|aof))?")
_NAMED = re.compile(r"^file ([^\s/\0]+) seq (\d+) type ([bhi])\b", re.MULTILINE)
# Bytes of a base without keys: Redis writes it before the first manifest.
_EMPTY_BASE = 200


def check_complete(folder: Path) -> None:
    """Check that Redis will not ignore files with data in its folder.

    Raises:
        ServiceError: The manifest is missing, or does not name all of them, or this Redis is older
            than the one that wrote them.
    """
    manifest = folder / _MANIFEST
    if left_out := _left_out(manifest):
        names = " and ".join(path.name for path in left_out)
        flaw = "does not name" if manifest.exists() else "is missing beside"
        raise ServiceError(
            f"{manifest} {flaw} {names}, which Redis would ignore; {_advice(folder)}"
        )
    if empty := next((one for one in manifest.parent.glob("*.base.rdb") if not _size(one)), None):
        raise ServiceError(f"{empty} is empty, and had data; {_advice(folder)}")
    # A program in its place may not tell its version.
    if manifest.exists() and 0 < (version := redis_version()) < 7:
        raise ServiceError(
            f"{folder} was written by Redis 7 or later, and {redis_binary()} is Redis {version}, "
            "which would start from nothing beside it; put the later redis-server on the PATH"
        )


def _left_out(manifest: Path) -> list[Path]:
    """The files with data that Redis would ignore."""
    named = _named(manifest)
    # A rewrite that was killed may leave a base that the manifest does not name yet, or files
    # before the named ones, which are in the base.
    last = max((number for number, kind in named.values() if kind == "i"), default=0)
    has_base = any(kind == "b" for _, kind in named.values())
    left_out = []
    for path in sorted(manifest.parent.glob("appendonly.aof*")):
        part = _PART.fullmatch(path.name)
        if part is None or path.name in named:
            continue
        needed = int(part[1]) > last if part[2] == "incr" else not has_base
        if needed and _size(path) > (_EMPTY_BASE if path.suffix == ".rdb" else 0):
            left_out.append(path)
    return left_out


def _named(manifest: Path) -> dict[str, tuple[int, str]]:
    """Number and kind of the files that a manifest names and that are there."""
    text = manifest.read_text(errors="replace") if manifest.exists() else ""
    found = {name: (int(number), kind) for name, number, kind in _NAMED.findall(text)}
    return {name: one for name, one in found.items() if (manifest.parent / name).exists()}


def _size(path: Path) -> int:
    return path.stat().st_size


def latest(folder: Path) -> tuple[Path, int] | None:
    """The file with the latest writes, and its size in bytes; None if there is none."""
    manifest = folder / _MANIFEST
    names = [f"appendonlydir/{name}" for name in _named(manifest)]
    file = folder / (names[-1] if names else _SINGLE)
    return (file, _size(file)) if file.exists() else None


def cut_note(before: tuple[Path, int] | None) -> str | None:
    """Describe what Redis cut off while it loaded; ``before`` is of :func:`latest`."""
    if before is None or not before[0].exists():
        return None
    file, size = before
    if (dropped := size - _size(file)) <= 0:
        return None
    return (
        f"Redis dropped the last {dropped} of {size} bytes of {file}, which ended in the middle of "
        "a write (a crash, or a full disk); what was lost with them is made again"
    )


def explain(folder: Path, error: ServiceError) -> ServiceError:
    """Return the error with which Redis ended, with what its own tool says of its files."""
    target = _checked(folder)
    if not target.exists():
        return error
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
    if done.returncode == 0 and "append" not in str(error):
        return error
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ok_up_to" in line]
    found = f" ({said[-1].strip()[:300]})" if said else ""
    return ServiceError(f"Redis cannot load {target}{found}: {error}; {_advice(folder)}")


def _checked(folder: Path) -> Path:
    manifest = folder / _MANIFEST
    return manifest if manifest.exists() else folder / _SINGLE


def _advice(folder: Path) -> str:
    target = shlex.quote(str(_checked(folder)))
    return (
        f"copy {folder}, then `redis-check-aof --fix {target}` keeps what is before the damage and "
        "the run makes the rest again; or use --force to start over"
    )
