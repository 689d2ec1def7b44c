"""Redis' append-only file of an embedded stack: damage is named, and never replaced by nothing.

Redis itself cuts a file that ends in the middle of a command, as after a crash. It refuses a file
that is damaged elsewhere. It ignores files without their manifest, and starts without them.
"""

import shlex
from pathlib import Path

from services.cli.embedded.services import redis_binary, redis_version
from shared.errors import ServiceError

# The place in the folder of Redis 7 and of Redis 6.
_MANIFEST = "appendonlydir/appendonly.aof.manifest"
_SINGLE = "appendonly.aof"
# Bytes of a base without keys: Redis writes it before the first manifest.
_EMPTY_BASE = 200
# In what Redis says as it refuses a file.
_OF_FILES = ("append", "aof", "rdb")


def check_complete(folder: Path) -> None:
    """Check that Redis will not ignore files with data in its folder.

    Raises:
        ServiceError: Their manifest is missing or empty, or this Redis is older than the one that
            wrote them.
    """
    manifest = folder / _MANIFEST
    named = manifest.exists() and manifest.read_text(errors="replace").startswith("file ")
    parts = [path for path in manifest.parent.glob("appendonly.aof.*") if path != manifest]
    if not named and any(path.stat().st_size > _EMPTY_BASE for path in parts):
        raise ServiceError(
            f"{manifest} is missing or damaged, and Redis would ignore the files beside it; "
            f"{_advice(folder)}"
        )
    # A program in its place may not tell its version.
    if manifest.exists() and 0 < (version := redis_version()) < 7:
        raise ServiceError(
            f"{folder} was written by Redis 7 or later, and {redis_binary()} is Redis {version}, "
            "which would start from nothing beside it; put the later redis-server on the PATH"
        )


def explain(folder: Path, error: ServiceError) -> ServiceError:
    """Return the error with which Redis ended, with what to do where its files are the cause."""
    if not any(word in str(error).lower() for word in _OF_FILES):
        return error
    return ServiceError(f"Redis cannot load {_checked(folder)}: {error}; {_advice(folder)}")


def _checked(folder: Path) -> Path:
    manifest = folder / _MANIFEST
    return manifest if manifest.exists() else folder / _SINGLE


def _advice(folder: Path) -> str:
    target = shlex.quote(str(_checked(folder)))
    return (
        f"copy {folder}, then `redis-check-aof --fix {target}` keeps what is before the damage and "
        "the run makes the rest again; or use --force to start over"
    )
