"""The append-only file of an embedded Redis, for tests that damage it."""

from pathlib import Path


def latest_writes(output: Path) -> Path:
    """The file with the latest writes of the stack of an output folder."""
    data = output / ".plumbline" / "redis"
    return max(data.glob("appendonlydir/*.incr.aof"), default=data / "appendonly.aof")
