"""Snapshots of the ledger: all keys of a run, or of a reward session, as they were at one moment.

A snapshot is made of Redis' own serialization (``DUMP``), whose version and checksum are checked by
the server that loads it (``RESTORE``). Large hashes and streams, which Redis would not accept as
one value, are stored by their fields and entries. Jobs, leases, locks and permits are no part of
it: a runner that resumes queues jobs again.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from redis import Redis

from shared.ledger import keys
from shared.ledger.ledger import list_runs
from shared.ledger.queue import text

# Bytes of memory above which a hash or stream is stored by its parts: DUMP compresses, which takes
# Redis twenty times as long, and a value of RESTORE may have 512 MiB.
_LARGE = 2**20
# Bytes that are sent at once.
_BATCH = 4 * 2**20
_REWARD = re.compile(r"[0-9a-f]{16}")
_LENGTH = struct.Struct(">I")

Kind = Literal["dump", "hash", "stream"]


@dataclass(frozen=True, slots=True)
class Group:
    """Keys that are read and written together.

    Attributes:
        name: Id of a run, or of a reward session with its prefix.
        keys: The keys. Those that do not exist are passed over.
    """

    name: str
    keys: list[str]

    @property
    def is_run(self) -> bool:
        return not keys.is_reward_run(self.name)

    @property
    def lock(self) -> str:
        return keys.RunKeys(self.name).lock


def groups(redis: Redis) -> list[Group]:
    """All runs and reward sessions, by id."""
    runs = list_runs(redis)
    found: dict[str, set[str]] = {run: set(keys.RunKeys(run).all) for run in runs}
    # The longest first, because an id may be the beginning of another one.
    prefixes = {
        prefix: run
        for run in sorted(runs, key=len, reverse=True)
        for prefix in (f"{keys.PREFIX}:run:{run}:", f"{keys.PREFIX}:canaries:{run}:")
    }
    for raw in redis.scan_iter(match=f"{keys.PREFIX}:*", count=1000):
        key = raw.decode(errors="surrogateescape")
        if (name := _reward_session(key)) is None:
            name = next((run for prefix, run in prefixes.items() if key.startswith(prefix)), None)
        if name is not None:
            found.setdefault(name, set()).add(key)
    named = (Group(name, sorted(found[name])) for name in sorted(found))
    return [Group(one.name, [key for key in one.keys if key != one.lock]) for one in named]


def _reward_session(key: str) -> str | None:
    if key == keys.REWARD_SESSIONS:
        return f"{keys.REWARDS}sessions"
    for prefix in (f"{keys.PREFIX}:reward:", f"{keys.PREFIX}:canaries:{keys.REWARDS}"):
        session = key.removeprefix(prefix).partition(":")[0]
        if key.startswith(prefix) and _REWARD.fullmatch(session):
            return f"{keys.REWARDS}{session}"
    return None


# Reading


def write_group(redis: Redis, group: Group, file: IO[bytes]) -> int:
    """Write the keys of a group, as they were at one moment, to a file.

    Redis answers nobody else meanwhile.

    Returns:
        The number of keys.
    """
    names = _encoded(group.keys)
    large = _large(redis, names)
    pipe = redis.pipeline(transaction=True)
    for name in names:
        pipe.pttl(name)
        if (kind := large.get(name)) is None:
            pipe.dump(name)
        elif kind == "hash":
            pipe.execute_command("HGETALL", name)  # type: ignore[no-untyped-call]
        else:
            pipe.execute_command("XRANGE", name, "-", "+")  # type: ignore[no-untyped-call]
    replies = iter(pipe.execute())
    written = 0
    for name in names:
        ttl, value = next(replies), next(replies)
        if ttl == -2:
            continue
        kind = large.get(name, "dump")
        parts = [value] if kind == "dump" else list(_flat(kind, value))
        if parts:
            _write_record(file, name, kind, ttl, parts)
            written += 1
    return written


def _encoded(names: Iterable[str]) -> list[bytes]:
    return [name.encode(errors="surrogateescape") for name in names]


def _large(redis: Redis, names: Sequence[bytes]) -> dict[bytes, Kind]:
    pipe = redis.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
        pipe.memory_usage(name, samples=100)
    replies = iter(pipe.execute())
    found: dict[bytes, Kind] = {}
    for name in names:
        kind, used = text(next(replies)), next(replies)
        if kind in ("hash", "stream") and used and used > _LARGE:
            found[name] = cast(Kind, kind)
    return found


def _flat(kind: Kind, value: Any) -> Iterator[bytes]:  # noqa: ANN401 - RESP2 or 3, parsed or not
    """Fields and values of a hash; of a stream's entries the id, the number of parts, the parts."""
    if kind == "hash":
        pairs = (
            value.items() if isinstance(value, dict) else zip(value[::2], value[1::2], strict=True)
        )
        for name, content in pairs:
            yield from (name, content)
        return
    for entry, fields in value:
        pairs = (
            fields.items()
            if isinstance(fields, dict)
            else zip(fields[::2], fields[1::2], strict=True)
        )
        flat = [part for pair in pairs for part in pair]
        yield from (entry, str(len(flat)).encode(), *flat)


def _write_record(
    file: IO[bytes], name: bytes, kind: Kind, ttl: int, parts: Sequence[bytes]
) -> None:
    shown = name.decode(errors="surrogateescape")
    header = {"key": shown, "kind": kind, "ttl": max(ttl, 0), "parts": len(parts)}
    file.write(json.dumps(header).encode() + b"\n")
    for part in parts:
        file.write(_LENGTH.pack(len(part)) + part)


# Writing


def restore_group(redis: Redis, group: Group, file: IO[bytes]) -> None:
    """Write the keys of a group from a file, in place of those that are there.

    A run is listed when all its keys are written.

    Raises:
        ValueError: The file has another form.
        ResponseError: Redis refuses a value, because a newer Redis has written it.
    """
    pipe = redis.pipeline(transaction=False)
    if group.is_run:
        pipe.srem(keys.RUNS, group.name)
    for name in _encoded(group.keys):
        pipe.unlink(name)
    pipe.execute()
    size = 0
    for name, kind, ttl, parts in _records(file):
        for command in _commands(name, kind, ttl, parts):
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            size += sum(map(len, command))
            if size >= _BATCH:
                pipe.execute()
                size = 0
    if group.is_run:
        pipe.sadd(keys.RUNS, group.name)
    pipe.execute()


def _records(file: IO[bytes]) -> Iterator[tuple[bytes, Kind, int, Iterator[bytes]]]:
    while line := file.readline():
        header = json.loads(line)
        parts = _parts(file, int(header["parts"]))
        name = str(header["key"]).encode(errors="surrogateescape")
        yield name, header["kind"], int(header["ttl"]), parts


def _parts(file: IO[bytes], count: int) -> Iterator[bytes]:
    for _ in range(count):
        (size,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
        yield _exactly(file, size)


def _exactly(file: IO[bytes], size: int) -> bytes:
    found = file.read(size)
    if len(found) != size:
        raise ValueError("the file ends in the middle of a value")
    return found


def _commands(
    name: bytes, kind: Kind, ttl: int, parts: Iterator[bytes]
) -> Iterator[tuple[bytes, ...]]:
    if kind == "dump":
        for value in parts:
            yield (b"RESTORE", name, str(ttl).encode(), value, b"REPLACE")
        return
    if kind == "hash":
        for field in parts:
            yield (b"HSET", name, field, next(parts))
    else:
        for entry in parts:
            fields = [next(parts) for _ in range(int(next(parts)))]
            yield (b"XADD", name, entry, *fields)
    if ttl:
        yield (b"PEXPIRE", name, str(ttl).encode())
