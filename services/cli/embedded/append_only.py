"""Redis' append-only file of an embedded stack: what of it is damaged, and its repair.

Redis itself cuts a file that ends in the middle of a command, as after a crash. It refuses a file
that is damaged elsewhere. It ignores a file that its manifest does not name, and starts without it.
"""

import mmap
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.cli.embedded.services import redis_binary, redis_version
from shared.errors import OutputError, ServiceError
from shared.files import write_text

# The place in the folder of Redis 7 and of Redis 6.
_MANIFEST = "appendonlydir/appendonly.aof.manifest"
_SINGLE = "appendonly.aof"
# A file of Redis 7 by its number and kind; a base that was Redis 6's file keeps that name.
_PART = re.compile(r"appendonly\.aof\.(\d+)\.(base|incr)\.(?:rdb|aof)")
_NAMED = re.compile(r"^file ([^\s/\0]+) seq (\d+) type ([bhi])\b", re.MULTILINE)
# Bytes of a base without keys: Redis writes it before the first manifest.
_EMPTY_BASE = 200
_ANALYZED = re.compile(r"AOF analyzed: (?:filename=(\S+), )?size=(\d+), ok_up_to=(\d+)")
# Found by the server alone, which says so in its log.
_UNKNOWN = re.compile(r"Unknown command '(.+?)' reading the append only file(?: (\S+\.aof))?")
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


def check_complete(folder: Path, output: str) -> None:
    """Check that Redis will not ignore files with data.

    Args:
        folder: Redis' data.
        output: The output folder, for the command that repairs.

    Raises:
        ServiceError: The manifest is missing, or does not name all of them, or this Redis is older
            than the one that wrote them.
    """
    if flaw := _left_out(folder):
        raise _manifest_error(f"{flaw}, and Redis would ignore it", output)
    if empty := _empty_base(folder):
        raise ServiceError(f"{empty} is empty, and had data; {_ADVICE}")
    # A program in its place may not tell its version.
    if (folder / _MANIFEST).exists() and 0 < (version := redis_version()) < 7:
        raise ServiceError(
            f"{folder} was written by Redis 7 or later, and {redis_binary()} is Redis {version}, "
            "which would start from nothing beside it; put the later redis-server on the PATH"
        )


def _empty_base(folder: Path) -> Path | None:
    """A base that lost all its bytes: Redis loads it as if it had no keys, but writes none such."""
    parts = (folder / _MANIFEST).parent.glob("*.base.rdb")
    return next((part for part in parts if not part.stat().st_size), None)


def _manifest_error(flaw: str, output: str) -> ServiceError:
    return ServiceError(
        f"{flaw}; `plumb repair {shlex.quote(output)}` writes a manifest of the files that are "
        f"there, and loses nothing; or {_ADVICE}"
    )


def _left_out(folder: Path) -> str | None:
    """Which files with data the manifest does not name; None if it names all that Redis needs."""
    manifest = folder / _MANIFEST
    parts = _parts(folder)
    if not manifest.exists():
        return f"{manifest} is missing beside {_listed(parts)}" if parts else None
    named = _named(manifest)
    # A rewrite that was killed may leave a base that the manifest does not name yet, or files
    # before the named ones, which are in the base.
    last = max((_number(name) for name, kind in named.items() if kind == "i"), default=0)
    left_out = [
        part
        for part in parts
        if part.name not in named
        and ("b" not in named.values() if _is_base(part.name) else _number(part.name) > last)
    ]
    return f"{manifest} does not name {_listed(left_out)}" if left_out else None


def _manifest_flaw(folder: Path) -> str | None:
    """What is wrong with a manifest that Redis refuses; None if it is not the manifest."""
    manifest = folder / _MANIFEST
    if not manifest.exists():
        return _left_out(folder)
    text = manifest.read_text(errors="replace")
    lines = [_NAMED.match(line) for line in text.splitlines() if not line.startswith("#")]
    numbered = all(line and int(line[2]) == _number(line[1]) for line in lines)
    if text.endswith("\n") and lines and numbered:
        return _left_out(folder)
    return f"{manifest} is damaged" if _parts(folder) else None


def _named(manifest: Path) -> dict[str, str]:
    """The files that are there and named, with their kinds."""
    found = _NAMED.findall(manifest.read_text(errors="replace"))
    return {name: kind for name, _, kind in found if (manifest.parent / name).exists()}


def _parts(folder: Path) -> list[Path]:
    """The files of Redis 7 with data, each base before what was written after it."""
    found = (folder / _MANIFEST).parent.glob("appendonly.aof*")
    parts = [path for path in found if _PART.fullmatch(path.name) or path.name == _SINGLE]
    with_data = [
        path
        for path in parts
        if path.stat().st_size > (_EMPTY_BASE if path.suffix == ".rdb" else 0)
    ]
    return sorted(with_data, key=lambda path: (not _is_base(path.name), _number(path.name)))


def _is_base(name: str) -> bool:
    return name == _SINGLE or ".base." in name


def _number(name: str) -> int:
    found = _PART.fullmatch(name)
    return int(found[1]) if found else 1


def _listed(parts: list[Path]) -> str:
    return " and ".join(part.name for part in parts)


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
    damage, said = _find_damage(target, str(error))
    if damage is None and (flaw := _manifest_flaw(folder)):
        return _manifest_error(flaw, output)
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


def repair(folder: Path, log: Path) -> tuple[Damage | None, Path] | None:
    """Cut the append-only file before its damage, or write its manifest, after a copy of all files.

    Args:
        folder: Redis' data.
        log: The log of the server that could not load them.

    Returns:
        What was cut off, None if it was the manifest, and where the copy is; None if there is no
        damage.

    Raises:
        OutputError: There is no such file, or it cannot be repaired.
    """
    if empty := _empty_base(folder):
        raise OutputError(f"{empty} is empty, and cannot be repaired; {_ADVICE}")
    if flaw := _manifest_flaw(folder):
        return None, _write_manifest(folder, flaw)
    target = _checked(folder)
    if target is None:
        raise OutputError(f"{folder} has no append-only file of Redis")
    damage, said = _find_damage(target, _end_of(log))
    if damage is None and not said:
        return None
    if damage is None or not damage.last:
        found = str(damage) if damage else f"{target} cannot be loaded ({said})"
        raise OutputError(f"{found}, and cannot be repaired; {_ADVICE}")
    with _repairing(damage.file, folder) as kept, damage.file.open("r+b") as file:
        file.truncate(damage.intact)
        os.fsync(file.fileno())
    return damage, kept


@contextmanager
def _repairing(file: Path, folder: Path) -> Iterator[Path]:
    """Copy all files of Redis before one of them is repaired."""
    kept = folder.with_name(f"{folder.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        shutil.copytree(folder, kept)
        yield kept
    except OSError as error:
        raise OutputError(f"cannot repair {file}: {error}") from None


def _write_manifest(folder: Path, flaw: str) -> Path:
    parts = _parts(folder)
    bases = [part for part in parts if _is_base(part.name)]
    if len(bases) > 1:
        raise OutputError(f"{flaw}, and which of {_listed(bases)} counts is not known; {_ADVICE}")
    lines = (
        f"file {part.name} seq {_number(part.name)} type {'b' if part in bases else 'i'}\n"
        for part in parts
    )
    manifest = folder / _MANIFEST
    with _repairing(manifest, folder) as kept:
        write_text(manifest, "".join(lines))
    return kept


def _checked(folder: Path) -> Path | None:
    """What redis-check-aof is told to check."""
    return next((path for name in (_MANIFEST, _SINGLE) if (path := folder / name).exists()), None)


def _latest(folder: Path) -> Path | None:
    manifest = folder / _MANIFEST
    if not manifest.exists():
        return folder / _SINGLE
    named = [*_named(manifest)]
    return manifest.parent / named[-1] if named else None


def _find_damage(target: Path, server: str) -> tuple[Damage | None, str]:
    """Look for the first damage.

    Args:
        target: What is checked.
        server: What the server said when it could not load it.

    Returns:
        The damage; and what Redis' own tool said if it found something else.
    """
    damage, said = _malformed(target)
    unknown = _unknown_command(target, server)
    if unknown and (damage is None or unknown.intact < damage.intact):
        return unknown, ""
    return damage, said


def _malformed(target: Path) -> tuple[Damage | None, str]:
    """Run Redis' own tool, which looks at the form only."""
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
    manifest = target.name if target.name != _SINGLE else ""
    for name, size, intact in _ANALYZED.findall(done.stdout):
        file = target.parent / name if name else target
        if int(intact) < int(size) and file.name != manifest:
            last = file == target or file == _latest(target.parent.parent)
            return Damage(file, int(size), int(intact), last), ""
    said = (done.stdout + done.stderr).strip().splitlines()
    flaws = [line for line in said if "rror" in line and "---" not in line]
    return None, (flaws[:1] or said[-1:] or ["redis-check-aof refuses it"])[0][:300]


def _unknown_command(target: Path, said: str) -> Damage | None:
    """Find the command that the server does not know, by what it said; the form is right."""
    if not (found := _UNKNOWN.search(said)):
        return None
    command, file = found[1].encode(), target.parent / (found[2] or target.name)
    if not file.exists() or not (size := file.stat().st_size):
        return None
    pattern = rb"\*\d+\r\n\$%d\r\n%s\r\n" % (len(command), re.escape(command))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = re.search(pattern, data)
    last = file == target or file == _latest(target.parent.parent)
    return Damage(file, size, place.start(), last) if place else None


def _end_of(log: Path) -> str:
    """The last line of a log."""
    try:
        return log.read_text(errors="replace").strip().splitlines()[-1]
    except (OSError, IndexError):
        return ""
