"""Damaged files of Redis: what is said of them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from services.cli.embedded import append_only
from services.cli.embedded.services import (
    launch_redis,
    redis_version,
    start_redis,
    wait_for_answer,
)
from shared.errors import ServiceError


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
    return str(append_only.explain(state / "redis", caught.value))


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


def test_damage_in_the_middle_is_named_with_the_remedy(output: Path) -> None:
    file = latest(output)
    content = file.read_bytes()
    place = content.index(b"*3", len(content) // 2)
    file.write_bytes(content[:place] + b"garbage" + content[place + 7 :])
    said = refusal(output)
    assert str(output) in said
    assert f"size={len(content)}" in said
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
    file = latest(output)
    content = file.read_bytes()
    named = content.index(b"SET", len(content) // 2)
    file.write_bytes(content[:named] + b"SEU" + content[named + 3 :])
    assert str(output) in refusal(output)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``output``, with transactions."""
    output = tmp_path_factory.mktemp("filled")
    with Started(output / ".plumbline") as client:
        for number in range(50):
            with client.pipeline(transaction=True) as pipe:
                pipe.set(f"key {number}", "x" * 20).hset("samples", str(number), "y" * 20)
                pipe.execute()
    return output


def _cut(content: bytes, place: int) -> bytes:
    return content[:place]


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _lose(content: bytes, place: int) -> bytes:
    return content[:place] + content[place + 211 :]


@settings(max_examples=20, deadline=None)
@given(damage=st.sampled_from([_cut, _flip, _lose]), place=st.floats(0.05, 0.999))
def test_no_damage_loses_writes_without_a_word(
    filled: Path, damage: Callable[[bytes, int], bytes], place: float
) -> None:
    """But for a bit of a name or value, which have no checksum, and whole writes at the end."""
    output = filled.with_name("damaged")
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(filled, output)
    state, file = output / ".plumbline", latest(output)
    content = file.read_bytes()
    file.write_bytes(damage(content, int(place * len(content))))
    before = append_only.latest(state / "redis")
    try:
        with Started(state) as client:
            whole = client.dbsize() == 51 and client.hlen("samples") == 50
            between = damage is _cut and content[file.stat().st_size :].startswith(b"*1\r\n")
            assert whole or between or damage is _flip or append_only.cut_note(before)
    except ServiceError as error:
        said = str(append_only.explain(state / "redis", error))
        assert str(state / "redis") in said
        assert "redis-check-aof --fix" in said


# Of Redis 7, which has a manifest; they are never loaded here.


_BASE, _WRITES = "appendonly.aof.3.base.rdb", "appendonly.aof.5.incr.aof"
_LINES = f"file {_BASE} seq 3 type b\nfile {_WRITES} seq 5 type i\n"
_LEFT_OUT = "does not name"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / _BASE).write_bytes(b"x" * 300)
    (folder / _WRITES).write_bytes(b"y")
    (folder / "appendonly.aof.manifest").write_text(_LINES)
    return folder


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "is missing beside"),
        ("", _LEFT_OUT),
        ("# nothing\n", _LEFT_OUT),
        ("\0" * 80, _LEFT_OUT),
        (_LINES.splitlines(keepends=True)[0], f"{_LEFT_OUT} {_WRITES}"),
        (_LINES.splitlines(keepends=True)[1], f"{_LEFT_OUT} {_BASE}"),
        (_LINES.replace("appendonly.aof.5", "appendonly.anf.5"), f"{_LEFT_OUT} {_WRITES}"),
    ],
)
def test_files_that_the_manifest_does_not_name_are_not_ignored(
    parts: Path, manifest: str | None, said: str
) -> None:
    (parts / "appendonly.aof.manifest").unlink()
    if manifest is not None:
        (parts / "appendonly.aof.manifest").write_text(manifest)
    with pytest.raises(ServiceError, match="redis-check-aof") as caught:
        append_only.check_complete(parts.parent)
    assert said in str(caught.value)


def test_what_a_killed_rewrite_leaves_is_no_damage(parts: Path) -> None:
    (parts / "appendonly.aof.4.base.rdb").write_bytes(b"x" * 300)
    (parts / "appendonly.aof.4.incr.aof").write_bytes(b"y")
    (parts / "appendonly.aof.6.incr.aof").touch()
    _check_but_for_the_version(parts.parent)
    first = parts.parent / "first"
    first.mkdir()
    (first / "appendonlydir").mkdir()
    (first / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(b"x" * 88)
    append_only.check_complete(first)


def _check_but_for_the_version(data: Path) -> None:
    if redis_version() >= 7:
        append_only.check_complete(data)
        return
    with pytest.raises(ServiceError, match="put the later redis-server on the PATH"):
        append_only.check_complete(data)


def test_a_program_that_does_not_tell_its_version_is_not_taken_for_an_old_one(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "redis-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert redis_version() == 0
    append_only.check_complete(parts.parent)


def test_a_base_without_a_byte(parts: Path) -> None:
    (parts / _BASE).write_bytes(b"")
    with pytest.raises(ServiceError, match="is empty, and had data"):
        append_only.check_complete(parts.parent)
