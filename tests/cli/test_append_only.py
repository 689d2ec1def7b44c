"""Damaged files of Redis: what is said of them."""

import os
from pathlib import Path

import pytest
from redis import Redis

from services.cli.embedded import append_only
from services.cli.embedded.services import (
    launch_redis,
    redis_version,
    start_redis,
    wait_for_answer,
)
from shared.errors import ServiceError
from tests.redis_files import latest_writes


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output folder with the state of a stack whose Redis was killed."""
    output = tmp_path / "out put"
    state = output / ".plumbline"
    with Started(state) as client:
        for number in range(100):
            client.set(f"key {number}", "x" * 50)
    return output


class Started:
    """A client of a server over the state, which is killed at the end."""

    def __init__(self, state: Path) -> None:
        state.mkdir(parents=True, exist_ok=True)
        with (state / "lock").open("a") as lock:
            self._child, url = start_redis(
                state / "redis", state / "redis.log", dict(os.environ), lock.fileno()
            )
        self._client = Redis.from_url(url)
        # What it is killed after is on the disk, however busy that is.
        self._client.config_set("appendfsync", "always")

    def __enter__(self) -> Redis:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._child.process.kill()
        self._child.process.wait()


def refusal(output: Path) -> str:
    """What a command says whose Redis cannot load its files."""
    state = output / ".plumbline"
    with (state / "lock").open("a") as lock:
        child, url = launch_redis(
            state / "redis", state / "redis.log", dict(os.environ), lock.fileno()
        )
    with pytest.raises(ServiceError) as caught:
        wait_for_answer(child, url)
    return str(append_only.explain(state / "redis", caught.value))


def test_a_cut_tail_is_loaded(output: Path) -> None:
    file = latest_writes(output)
    file.write_bytes(file.read_bytes()[:-20])
    with Started(output / ".plumbline") as client:
        assert client.dbsize() == 99


def test_damage_in_the_middle_is_named_with_the_remedy(output: Path) -> None:
    file = latest_writes(output)
    content = file.read_bytes()
    place = content.index(b"*3", len(content) // 2)
    file.write_bytes(content[:place] + b"garbage" + content[place + 7 :])
    said = refusal(output)
    assert str(output) in said
    assert "redis-check-aof --fix" in said


def _spoil_base(data: Path) -> None:
    with Started(data.parent) as client:
        client.bgrewriteaof()
        while client.info("persistence")["aof_rewrite_in_progress"]:
            pass
    (base,) = data.glob("appendonlydir/*.base.rdb")
    content = bytearray(base.read_bytes())
    content[len(content) // 2] ^= 255
    base.write_bytes(bytes(content))


def test_a_damaged_base_is_named(output: Path) -> None:
    data = output / ".plumbline" / "redis"
    if not (data / "appendonlydir").exists():
        return  # of Redis 6, which has a single file
    _spoil_base(data)
    assert "--force" in refusal(output)


def test_a_command_that_redis_does_not_know(output: Path) -> None:
    """Its form is right, so Redis' own tool finds nothing."""
    file = latest_writes(output)
    content = file.read_bytes()
    named = content.index(b"SET", len(content) // 2)
    file.write_bytes(content[:named] + b"SEU" + content[named + 3 :])
    assert str(output) in refusal(output)


# Of Redis 7, which has a manifest; they are never loaded here.


_BASE, _WRITES = "appendonly.aof.3.base.rdb", "appendonly.aof.5.incr.aof"
_LINES = f"file {_BASE} seq 3 type b\nfile {_WRITES} seq 5 type i\n"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / _BASE).write_bytes(b"x" * 300)
    (folder / _WRITES).write_bytes(b"y")
    (folder / "appendonly.aof.manifest").write_text(_LINES)
    return folder


@pytest.mark.parametrize("manifest", [None, "", "# nothing\n", "\0" * 80])
def test_files_without_their_manifest_are_not_ignored(parts: Path, manifest: str | None) -> None:
    (parts / "appendonly.aof.manifest").unlink()
    if manifest is not None:
        (parts / "appendonly.aof.manifest").write_text(manifest)
    with pytest.raises(ServiceError, match=r"missing or damaged.*redis-check-aof"):
        append_only.check_complete(parts.parent)


def test_the_first_base_of_a_redis_that_was_killed_is_no_damage(parts: Path) -> None:
    _check_but_for_the_version(parts.parent)
    first = parts.parent / "first"
    (first / "appendonlydir").mkdir(parents=True)
    (first / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(b"x" * 88)
    append_only.check_complete(first)


def _check_but_for_the_version(data: Path) -> None:
    if redis_version() >= 7:
        append_only.check_complete(data)
        return
    with pytest.raises(ServiceError, match="put the later redis-server on the PATH"):
        append_only.check_complete(data)
