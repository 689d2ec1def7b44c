"""Record what a release leaves behind: `python -m tests.upgrade.record COMMIT FOLDER`.

Begins a run of a few demo problems with the processes of that commit, stops its judges, waits for
more completions and kills the runner. Writes the keys of Redis (``redis.json.gz``), the index of
the aggregator (``index.sqlite.gz``) and the run's folder (``run/``). Needed again for each version
of the ledger or of the index.
"""

import argparse
import base64
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis import Redis

from tests.conftest import RedisServer
from tests.e2e.plumb import environment
from tests.upgrade.releases import Ended, Release, checked_out, external_stack

# Problems of each data set, and verdicts before the judges stop.
_PROBLEMS, _VERDICTS = 2, 3
# Keys of processes that are gone, and of permits: they expire, as locks do.
_LEFT_OUT = ("rq:worker", "plumbline:permits", "plumbline:lease", "plumbline:woken", "rq:clean")

_Value = Any


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.record", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="record-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        release = checked_out(options.commit, folder / "release")
        server = RedisServer(folder / "redis")
        try:
            _begin(release, folder, server)
            with Redis.from_url(server.url) as redis:
                found = json.dumps(keys_of(redis), indent=0, sort_keys=True)
                document = found.replace(place, "/recorded")
        finally:
            server.stop()
        _pack(document.encode(), options.folder / "redis.json.gz")
        _pack((folder / "index" / "index.sqlite").read_bytes(), options.folder / "index.sqlite.gz")
        shutil.rmtree(options.folder / "run", ignore_errors=True)
        shutil.copytree(folder / "output", options.folder / "run")
        record = options.folder / "run" / "run.json"
        record.write_text(record.read_text().replace(place, "/recorded"))
    return 0


def _begin(release: Release, folder: Path, server: RedisServer) -> None:
    output = folder / "output"
    redis = Redis.from_url(server.url)
    slow = {"PLUMBLINE_GENERATOR_REPLAY_LATENCY": "0.5"}
    # Paths in the release's folder, which are the same wherever it lies.
    some = (f"data.limit={_PROBLEMS}", "generation.concurrency=1")
    arguments = ["run", "--config", "configs/demo.yaml", "--output", str(output), *some]
    services = {"generator": (release,), "aggregator": (release,)}
    with (
        release.service("sandbox", folder / "sandbox") as sandbox,
        external_stack(folder, services, server, sandbox, generator=slow) as settings,
    ):
        named = settings | {"PLUMBLINE_JUDGE_NAME": "judge-1"}
        with release.service("judge", folder / "judge", **named):
            process = subprocess.Popen(
                release.command("services.cli", *arguments),
                cwd=release.root,
                env=environment() | settings,
            )
            _until(lambda: _count(redis, "verdicts") >= _VERDICTS)
        try:
            _until(lambda: _count(redis, "hashes") >= _VERDICTS + 2)
        finally:
            process.kill()
            process.wait()
        time.sleep(2)  # the aggregator reads the last verdict
    redis.close()


def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        if time.monotonic() > ends:
            raise Ended("the run made no progress")
        time.sleep(0.02)


def _count(redis: Redis, kind: str) -> int:
    return sum(redis.hlen(key) for key in redis.scan_iter(f"plumbline:run:*:{kind}"))


def _pack(data: bytes, path: Path) -> None:
    path.write_bytes(gzip.compress(data, mtime=0))


# Keys as JSON, because Redis' own dumps need a server of the same version or a later one.


def keys_of(redis: Redis) -> dict[str, dict[str, _Value]]:
    """Type and value of every key that stays."""
    read: dict[str, Callable[[bytes], _Value]] = {
        "string": redis.get,
        "hash": redis.hgetall,
        "set": lambda key: sorted(redis.smembers(key)),
        "list": lambda key: redis.lrange(key, 0, -1),
        "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        "stream": lambda key: redis.xrange(key),
    }
    found = {}
    for key in sorted(redis.keys("*")):
        if not (key.decode().startswith(_LEFT_OUT) or key.endswith(b":lock")):
            kind = redis.type(key).decode()
            found[key.decode()] = {"type": kind, "value": _as_json(read[kind](key))}
    return found


def load_keys(redis: Redis, document: dict[str, dict[str, _Value]]) -> None:
    """Write recorded keys into an empty database."""
    for key, stored in document.items():
        value = _from_json(stored["value"])
        match stored["type"]:
            case "string":
                redis.set(key, value)
            case "hash":
                redis.hset(key, mapping=dict(value))
            case "set":
                redis.sadd(key, *value)
            case "list":
                redis.rpush(key, *value)
            case "zset":
                redis.zadd(key, dict(value))
            case "stream":
                for entry, fields in value:
                    redis.xadd(key, dict(fields), id=entry)


def recorded_keys(folder: Path) -> dict[str, dict[str, _Value]]:
    return dict(json.loads(gzip.decompress((folder / "redis.json.gz").read_bytes())))


def _as_json(value: _Value) -> _Value:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return [[_as_json(name), _as_json(one)] for name, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    return value


def _from_json(value: _Value) -> _Value:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    if isinstance(value, list):
        return [_from_json(one) for one in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
