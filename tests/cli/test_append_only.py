"""Damaged files of Redis: what is said of them, and what `plumb repair` does."""

import os
from pathlib import Path

import pytest
from redis import Redis

from services.cli.embedded import append_only
from services.cli.embedded.services import launch_redis, start_redis, wait_for_answer
from shared.errors import ServiceError
from tests.cli.commands import plumb


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

    def __enter__(self) -> Redis:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._child.process.kill()
        self._child.process.wait()


def latest(output: Path) -> Path:
    found = append_only.latest(output / ".plumbline" / "redis")
    assert found is not None
    return found[0]


def refusal(output: Path) -> str:
    """What a command says whose Redis cannot load its files."""
    state = output / ".plumbline"
    with (state / "lock").open("a") as lock:
        child, url = launch_redis(
            state / "redis", state / "redis.log", dict(os.environ), lock.fileno()
        )
    with pytest.raises(ServiceError) as caught:
        wait_for_answer(child, url)
    return str(append_only.explain(state / "redis", str(output), caught.value))


def test_a_cut_tail_is_loaded_and_named(output: Path) -> None:
    file = latest(output)
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    before = append_only.latest(output / ".plumbline" / "redis")
    with Started(output / ".plumbline") as client:
        assert client.dbsize() == 99
        note = append_only.cut_note(before)
    assert note is not None
    assert str(file) in note
    assert f"of {len(content) - 20} bytes" in note


def test_nothing_is_said_of_an_intact_file(output: Path) -> None:
    before = append_only.latest(output / ".plumbline" / "redis")
    with Started(output / ".plumbline"):
        assert append_only.cut_note(before) is None
    done = plumb("repair", str(output), folder=output)
    assert (done.code, done.stderr) == (0, "")
    assert "intact" in done.stdout


def test_damage_in_the_middle_is_named_and_repaired(output: Path) -> None:
    file = latest(output)
    content = file.read_bytes()
    place = content.index(b"*3", len(content) // 2)
    damaged = content[:place] + b"garbage" + content[place + 7 :]
    file.write_bytes(damaged)
    said = refusal(output)
    assert f"{file} is damaged after" in said
    assert f"of {len(content)} bytes" in said
    assert f"plumb repair '{output}'" in said
    done = plumb("repair", str(output), folder=output)
    assert done.code == 0, done.stderr
    (kept,) = output.glob(".plumbline/redis.damaged-*")
    assert str(kept) in done.stdout
    assert (kept / file.relative_to(output / ".plumbline" / "redis")).read_bytes() == damaged
    with Started(output / ".plumbline") as client:
        assert 40 < client.dbsize() < 60


def _spoil_base(data: Path) -> None:
    with Started(data.parent) as client:
        client.bgrewriteaof()
        while client.info("persistence")["aof_rewrite_in_progress"]:
            pass
    (base,) = data.glob("appendonlydir/*.base.rdb")
    content = bytearray(base.read_bytes())
    content[len(content) // 2] ^= 255
    base.write_bytes(bytes(content))


def test_a_damaged_base_has_no_repair(output: Path) -> None:
    data = output / ".plumbline" / "redis"
    if not (data / "appendonlydir").exists():
        return  # of Redis 6, which has a single file
    _spoil_base(data)
    said = refusal(output)
    assert "restore a backup" in said
    assert "--force" in said
    done = plumb("repair", str(output), folder=output)
    assert done.code == 2
    assert "cannot be repaired" in done.line


def test_files_without_their_manifest_are_not_ignored(output: Path) -> None:
    data = output / ".plumbline" / "redis"
    append_only.check_complete(data)
    manifest = data / "appendonlydir" / "appendonly.aof.manifest"
    if not manifest.exists():
        return  # of Redis 6, which has none
    manifest.unlink()
    with pytest.raises(ServiceError, match="would start from nothing"):
        append_only.check_complete(data)


def test_a_folder_without_a_stack(tmp_path: Path) -> None:
    done = plumb("repair", str(tmp_path), folder=tmp_path)
    assert done.code == 2
    assert "no run with --embedded was here" in done.line
